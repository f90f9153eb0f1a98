"""Random generators: every fork of one image would otherwise draw alike."""

import os
import random
import sys
from contextlib import suppress

__all__ = ["seed_generators"]


def seed_generators(seed: int | None) -> None:
    """Seed the global generators of random, numpy and sympy, where loaded.

    Args:
        seed: Any integer; None for a fresh one.
    """
    if seed is None:
        seed = int.from_bytes(os.urandom(8), "big")
    random.seed(seed)
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed(seed % 2**32)
    if sympy_random := sys.modules.get("sympy.core.random"):
        with suppress(AttributeError):  # moved between versions
            sympy_random.seed(seed)
