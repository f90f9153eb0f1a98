"""What runs in the worker processes: the standard library and the sandbox only."""
