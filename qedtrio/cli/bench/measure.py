"""Figures: what is measured, and how samples become percentiles. No I/O."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

__all__ = ["Measurement", "measurement", "percentile", "with_ratios"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One scenario at one number of clients.

    Attributes:
        requests: Answered as expected, warm-up excluded. One "request" is one
            whole iteration of the scenario, whatever it sends.
        errors: Kind → count; warm-up included, so that none is hidden.
        seconds: From the common start to the last answer.
        p50_ms: Milliseconds, nearest rank; None without a sample.
        p90_ms: Likewise.
        p99_ms: Likewise.
        per_second: `requests` by `seconds`.
        items_per_request: Verifications in one request, where there are many.
        server_cpu_ms: User and system time of the daemon's own process per
            request, its workers excluded; None where it cannot be read.
        floor: Name of the measurement that bounds this one from below.
        ratio: p50 by the floor's p50 at the same number of clients.
    """

    scenario: str
    clients: int
    requests: int
    errors: Mapping[str, int]
    seconds: float
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    per_second: float
    items_per_request: int = 1
    server_cpu_ms: float | None = None
    floor: str | None = None
    ratio: float | None = None


def percentile(ordered: Sequence[float], fraction: float) -> float | None:
    """Find the smallest sample that at least `fraction` of them do not exceed.

    Args:
        ordered: Samples in ascending order.
        fraction: In (0, 1].

    Source: the nearest-rank definition; it never invents a value.
    """
    if not ordered:
        return None
    # Rounding first: 0.9 * 10 is a little above 9 in binary.
    rank = math.ceil(round(fraction * len(ordered), 9))
    return ordered[max(rank, 1) - 1]


def measurement(
    scenario: str,
    samples: Sequence[float],
    *,
    seconds: float,
    clients: int = 1,
    errors: Mapping[str, int] | None = None,
    cpu_seconds: float | None = None,
    items_per_request: int = 1,
    floor: str | None = None,
) -> Measurement:
    """Summarise `samples`, given in seconds and in any order."""
    ordered = sorted(sample * 1000 for sample in samples)
    count = len(ordered)
    cpu_known = cpu_seconds is not None and count > 0
    return Measurement(
        scenario=scenario,
        clients=clients,
        requests=count,
        errors=dict(errors or {}),
        seconds=seconds,
        p50_ms=percentile(ordered, 0.5),
        p90_ms=percentile(ordered, 0.9),
        p99_ms=percentile(ordered, 0.99),
        per_second=count / seconds if seconds > 0 else 0.0,
        items_per_request=items_per_request,
        server_cpu_ms=1000 * (cpu_seconds or 0.0) / count if cpu_known else None,
        floor=floor,
    )


def with_ratios(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Fill in `ratio` wherever the floor was measured too.

    A floor that takes no clients, such as `fork`, bounds every number of them.
    """
    p50 = {(m.scenario, m.clients): m.p50_ms for m in measurements}
    result = []
    for one in measurements:
        floor = p50.get((one.floor or "", one.clients))
        floor = floor or p50.get((one.floor or "", 1))
        known = one.p50_ms is not None and floor
        result.append(replace(one, ratio=one.p50_ms / floor) if known else one)  # type: ignore[operator]  # known says neither is None
    return result
