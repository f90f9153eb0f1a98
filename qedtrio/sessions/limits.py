"""Which limits hold for a session: the configured ones, or less on request."""

from collections.abc import Mapping
from dataclasses import asdict

from qedtrio.config import Limits
from qedtrio.errors import RequestError

__all__ = ["LOWERABLE", "effective_limits"]

LOWERABLE = (
    "deadline_seconds",
    "memory_bytes",
    "processes",
    "open_files",
    "file_bytes",
    "output_bytes",
    "result_bytes",
)
"""What a session may lower for itself."""

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
    limits = {k: v for k, v in asdict(configured).items() if k in LOWERABLE}
    for name, value in (asked or {}).items():
        field = f"$.limits.{name}"
        if name not in limits:
            raise RequestError(field, f"unknown limit; known: {', '.join(LOWERABLE)}")
        if not LEAST.get(name, 0) < value <= limits[name]:
            raise RequestError(
                field,
                f"must be above {LEAST.get(name, 0):g} and at most"
                f" {limits[name]:g}, got {value:g}",
            )
        limits[name] = value
    return limits
