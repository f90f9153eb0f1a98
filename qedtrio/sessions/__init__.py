"""Sessions: named interpreter states, each one task that owns a worker."""
