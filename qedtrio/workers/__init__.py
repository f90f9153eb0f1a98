"""Processes: pools of workers, their fork servers, and the channel to each."""
