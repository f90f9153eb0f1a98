"""Isolation of workers, one kernel facility a file; no third-party code."""
