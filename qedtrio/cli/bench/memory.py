"""What an idle session costs."""

from dataclasses import dataclass

import psutil

from qedtrio.cli.bench.crowd import open_crowd, read_status

__all__ = ["IdleCost", "measure_idle_sessions", "private_bytes"]

IDLE_SESSIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCost:
    """Private memory of workers whose sessions ran one line and then idled.

    Attributes:
        mean_bytes: Unique set size: what would be freed if the worker died.
        unreadable: Workers whose memory we may not read.
    """

    sessions: int
    mean_bytes: float | None
    max_bytes: int | None
    unreadable: int


async def measure_idle_sessions(url: str) -> IdleCost:
    """Open some sessions, run a line in each, and weigh their workers.

    Raises:
        TransportError: The daemon could not be asked.
        RefusedError: It refused, or a run failed.
    """
    async with open_crowd(url, IDLE_SESSIONS) as crowd:
        await crowd.run_everywhere()
        status = await read_status(url)
        pids = [
            worker.pid
            for pool in status.pools.values()
            for worker in pool.workers
            if worker.session_id in crowd.session_ids
        ]
        sizes = [size for pid in pids if (size := private_bytes(pid)) is not None]
        await crowd.close_everywhere()
    return IdleCost(
        sessions=len(pids),
        mean_bytes=sum(sizes) / len(sizes) if sizes else None,
        max_bytes=max(sizes, default=None),
        unreadable=len(pids) - len(sizes),
    )


def private_bytes(pid: int) -> int | None:
    """Read the unique set size of a process; None where that is not allowed."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except psutil.Error:
        return None
