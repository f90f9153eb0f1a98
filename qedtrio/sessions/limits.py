"""Which limits hold for a session: the configured ones, or less on request."""

from collections.abc import Mapping
from dataclasses import asdict

from qedtrio.config import Limits
from qedtrio.errors import RequestError

__all__ = ["LOWERABLE", "effective_limits", "run_deadline"]

LOWERABLE = (
    "deadline_seconds",
    "cpu_seconds",
    "memory_bytes",
    "processes",
    "open_files",
    "file_bytes",
    "output_bytes",
    "result_bytes",
)
"""What a session may lower for itself."""

WATCHED = ("disk_bytes",)
"""What no session can lower, but the watch must know."""

LEAST = {"memory_bytes": 64 * 1024 * 1024, "open_files": 16, "output_bytes": 16}
"""Below these the worker itself could not go on."""


def effective_limits(
    configured: Limits, asked: Mapping[str, float] | None
) -> dict[str, float]:
    """Combine the configured limits with those a session asks for.

    Raises:
        RequestError: A name is unknown, or a value is above the configured
            one or too low to work with.
    """
    known = {*LOWERABLE, *WATCHED}
    limits = {k: v for k, v in asdict(configured).items() if k in known}
    for name, value in (asked or {}).items():
        field = f"$.limits.{name}"
        if name not in limits:
            raise RequestError(field, f"unknown limit; known: {', '.join(LOWERABLE)}")
        if name in WATCHED:
            raise RequestError(field, "cannot be lowered for one session")
        if not LEAST.get(name, 0) < value <= limits[name]:
            raise RequestError(
                field,
                f"must be above {LEAST.get(name, 0):g} and at most"
                f" {limits[name]:g}, got {value:g}",
            )
        limits[name] = value
    return limits


def run_deadline(
    limits: Limits, effective: Mapping[str, float], asked: float | None
) -> float:
    """The deadline of a run in seconds from dispatch.

    Raises:
        RequestError: More was asked for than the configuration allows.
    """
    if asked is None:
        return effective["deadline_seconds"]
    if asked > limits.max_deadline_seconds:
        raise RequestError(
            "$.deadline_seconds",
            f"must be at most {limits.max_deadline_seconds:g}, got {asked:g}",
        )
    return asked
