"""Verdicts: extraction, comparison in killable workers, and the service."""
