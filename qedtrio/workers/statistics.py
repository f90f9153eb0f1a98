"""The figures of a pool, as `GET /v1/status` shows them."""

from dataclasses import dataclass

import psutil
import trio

from qedtrio.workers.succession import PoolState
from qedtrio.workers.worker import Worker

__all__ = ["PoolStatistics", "WorkerStatistics", "describe", "resident_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatistics:
    """One worker; `memory_bytes` is its resident size, shared pages included.

    States are idle, busy, dying (killed, not yet confirmed dead) and exited.
    """

    pid: int
    state: str
    session_id: str | None
    age_seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """A pool at this moment.

    Attributes:
        dying: Killed, and not yet confirmed dead.
        restarts: Fork servers opened because one had died.
        generations: Fork servers alive; more than one while old workers end.
        recycles: Fork servers replaced because they were worn.
    """

    state: PoolState
    engine: str
    ready: int
    busy: int
    dying: int
    starting: int
    restarts: int
    queue: int
    failure: str
    workers: tuple[WorkerStatistics, ...]
    generations: int = 1
    recycles: int = 0


def describe(worker: Worker, *, idle: bool) -> WorkerStatistics:
    """One worker at this moment."""
    return WorkerStatistics(
        pid=worker.pid,
        state=_state(worker, idle=idle),
        session_id=worker.session_id,
        age_seconds=trio.current_time() - worker.started_at,
        memory_bytes=resident_bytes(worker),
    )


def resident_bytes(worker: Worker) -> int:
    """Memory of the worker itself; 0 when it is gone, or nobody can say."""
    if worker.pid < 1:  # reaped before its number was known
        return 0
    try:
        return int(psutil.Process(worker.pid).memory_info().rss)
    except (psutil.Error, OSError):  # it is gone, or we are out of descriptors
        return 0


def _state(worker: Worker, *, idle: bool) -> str:
    if worker.is_dying:
        return "dying"
    if worker.gone.is_set():
        return "exited"
    return "idle" if idle else "busy"
