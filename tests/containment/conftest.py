"""The same pools as in the workers' own tests: every tier, both engines."""

from tests.workers.conftest import kind, pool

__all__ = ["kind", "pool"]
