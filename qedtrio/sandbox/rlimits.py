"""Resource limits of a process, set once at birth and lowered at a lease."""

import contextlib
import resource
from collections.abc import Mapping

__all__ = ["MOST_SHARED_PROCESSES", "apply_limits", "shared_limits"]

_KINDS = {
    "memory_bytes": resource.RLIMIT_AS,
    "processes": resource.RLIMIT_NPROC,
    "open_files": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
}


def apply_limits(limits: Mapping[str, float]) -> None:
    """Lower soft and hard limits to the given values; never raise one.

    Args:
        limits: Keys of `config.Limits`; those without a resource limit of
            their own are passed over.
    """
    for name, kind in _KINDS.items():
        if name in limits:
            _lower(kind, int(limits[name]))
    _lower(resource.RLIMIT_CORE, 0)


MOST_SHARED_PROCESSES = 8192
"""For all workers of one user: a fork bomb ends here, and hosts allow 32768."""


def shared_limits(limits: Mapping[str, float], workers: int) -> dict[str, float]:
    """Make room for neighbours where all workers run as one user (tiers B, C).

    The kernel counts RLIMIT_NPROC by user, so a limit meant for one worker
    would be used up by the others. The watch holds each to its own.

    Args:
        limits: Keys of `config.Limits`.
        workers: How many there may be at most, of all pools.
    """
    room = min(limits["processes"] * workers, MOST_SHARED_PROCESSES)
    return {**limits, "processes": room}


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    # A container may forbid even lowering; the other limits still hold.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (value, value))
