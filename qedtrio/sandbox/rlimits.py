"""Resource limits of a process, set once at birth and lowered at a lease."""

import contextlib
import resource
from collections.abc import Mapping

__all__ = ["apply_limits"]

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


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    # A container may forbid even lowering; the other limits still hold.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (value, value))
