"""The daemon's figures, in the shape that `GET /v1/status` promises."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from qedtrio.sessions.registry import SessionStatistics
from qedtrio.workers.pool import PoolStatistics

__all__ = [
    "DaemonStatus",
    "Readiness",
    "VerifyStatus",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether work can be done now.

    Attributes:
        reasons: Why not, one sentence each; may also hold warnings.
        tier: Isolation tier reached.
    """

    ready: bool
    reasons: tuple[str, ...]
    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyStatus:
    """Verification.

    Attributes:
        queue: Items waiting for a worker.
        items: Items judged since the start.
        retries: Items tried again after their worker died or overran.
    """

    queue: int
    cache_hits: int = 0
    cache_misses: int = 0
    items: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """The whole daemon."""

    version: str
    tier: str
    uptime_seconds: float
    draining: bool
    sessions: SessionStatistics
    verify: VerifyStatus
    pools: Mapping[str, PoolStatistics] = field(default_factory=dict)
