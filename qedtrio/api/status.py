"""The daemon's figures, in the shape that `GET /v1/status` promises."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "DaemonStatus",
    "PoolStatus",
    "Readiness",
    "SessionsStatus",
    "VerifyStatus",
    "WorkerStatus",
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
class WorkerStatus:
    """One worker.

    Attributes:
        session_id: The session that holds it, None while it is unleased.
        age_seconds: Since it was started.
        memory_bytes: Its resident size.
    """

    pid: int
    state: str
    session_id: str | None
    age_seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """One pool.

    Attributes:
        ready: Idle workers.
        busy: Workers that a session or an item holds.
        starting: Workers on their way.
        restarts: Of its fork server or, without one, of its workers, that
            nobody asked for.
        queue: Requests waiting for a worker.
    """

    state: str
    engine: str
    ready: int
    busy: int
    starting: int
    restarts: int
    queue: int
    workers: tuple[WorkerStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsStatus:
    """Sessions by where they stand.

    Attributes:
        orphans: Sessions whose worker could not be confirmed dead yet.
    """

    live: int
    starting: int
    closing: int
    orphans: int


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
    sessions: SessionsStatus
    verify: VerifyStatus
    pools: Mapping[str, PoolStatus] = field(default_factory=dict)
