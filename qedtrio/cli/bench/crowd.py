"""Many sessions: what an idle one costs, and how soon all are dead."""

import os
import signal
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import psutil
import trio

from qedtrio.cli.bench.daemon import Daemon
from qedtrio.cli.bench.scenarios import RUN, check_run
from qedtrio.cli.calls import Opened, ask
from qedtrio.cli.http import Connection, open_connection

__all__ = ["Crowd", "IdleCost", "measure_crowd", "measure_idle_sessions"]

CONNECTIONS = 32
IDLE_SESSIONS = 20
DEATH_SECONDS = 30.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Many sessions alive at once, then a SIGTERM.

    Attributes:
        live: Sessions that the daemon itself counted when all were open.
        answered: Sessions that ran a line while all were open.
        open_seconds: Until all were open.
        answer_seconds: Until all had answered.
        processes: Of the daemon and below it, when it was told to end.
        dead_seconds: From SIGTERM until all of them were dead.
        survivors: Processes still alive after the longest wait; killed then.
        exit_code: The daemon's.
    """

    sessions: int
    live: int
    answered: int
    open_seconds: float
    answer_seconds: float
    processes: int
    dead_seconds: float
    survivors: int
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """What is read of a worker in the status."""

    pid: int
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """What is read of a pool."""

    workers: list[WorkerSeen] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SessionsSeen:
    """What is read of the sessions."""

    live: int


@dataclass(frozen=True, slots=True)
class Status:
    """What is read of `GET /v1/status`."""

    pools: dict[str, PoolSeen]
    sessions: SessionsSeen


async def read_status(url: str) -> Status:
    """Ask the daemon for its status."""
    async with open_connection(url) as connection:
        return (await ask(connection, "GET", "/v1/status")).json(Status)


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


async def measure_crowd(daemon: Daemon, sessions: int) -> Crowd:
    """Open `sessions` sessions, use them all, and end the daemon under them.

    Raises:
        TransportError: The daemon could not be asked.
        RefusedError: It refused a session, or a run failed.
    """
    clock = time.perf_counter
    started = clock()
    async with open_crowd(daemon.url, sessions) as crowd:
        opened = clock()
        await crowd.run_everywhere()
        answered = clock()
        status = await read_status(daemon.url)
        family = psutil.Process(daemon.process.pid)
        pids = [family.pid, *(child.pid for child in family.children(recursive=True))]
        dead_seconds, survivors = await end_and_wait(daemon.process, pids)
    return Crowd(
        sessions=sessions,
        live=status.sessions.live,
        answered=crowd.answered,
        open_seconds=opened - started,
        answer_seconds=answered - opened,
        processes=len(pids),
        dead_seconds=dead_seconds,
        survivors=survivors,
        exit_code=daemon.process.returncode,
    )


async def end_and_wait(process: trio.Process, pids: Sequence[int]) -> tuple[float, int]:
    """Send SIGTERM to `process`; wait until it and all of `pids` are dead.

    Returns:
        Seconds until the last death, and how many had to be killed by us.
    """
    with ExitStack() as stack:
        pidfds = list(open_pidfds(pids, stack))
        started = time.perf_counter()
        process.terminate()
        alive = set(pidfds)

        async def wait_death(pidfd: int) -> None:
            await trio.lowlevel.wait_readable(pidfd)  # readable once it has died
            alive.discard(pidfd)

        with trio.move_on_after(DEATH_SECONDS):
            async with trio.open_nursery() as nursery:
                for pidfd in pidfds:
                    nursery.start_soon(wait_death, pidfd)
            await process.wait()
        seconds = time.perf_counter() - started
        for pidfd in alive:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return seconds, len(alive)


def open_pidfds(pids: Iterable[int], stack: ExitStack) -> Iterator[int]:
    """Open a descriptor for each process that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            stack.callback(os.close, pidfd)
            yield pidfd


@dataclass
class OpenCrowd:
    """Sessions spread over a few connections."""

    held: list[tuple[Connection, list[str]]]
    answered: int = 0

    @property
    def session_ids(self) -> set[str]:
        """The ids of all sessions."""
        return {name for _, names in self.held for name in names}

    async def open_everywhere(self, sessions: int) -> None:
        """Open `sessions` sessions, one at a time on each connection."""
        waiting = iter(range(sessions))

        async def open_some(connection: Connection, names: list[str]) -> None:
            for _ in waiting:
                reply = await ask(connection, "POST", "/v1/sessions", {})
                names.append(reply.json(Opened).session_id)

        await self._everywhere(open_some)

    async def run_everywhere(self) -> None:
        """Run a line in every session."""

        async def run_some(connection: Connection, names: list[str]) -> None:
            for name in names:
                path = f"/v1/sessions/{name}/run"
                check_run(await ask(connection, "POST", path, RUN), "2\n")
                self.answered += 1

        await self._everywhere(run_some)

    async def close_everywhere(self) -> None:
        """Close every session."""

        async def close_some(connection: Connection, names: list[str]) -> None:
            for name in names:
                await ask(connection, "DELETE", f"/v1/sessions/{name}")

        await self._everywhere(close_some)

    async def _everywhere(
        self, task: Callable[[Connection, list[str]], Awaitable[None]]
    ) -> None:
        async with trio.open_nursery() as nursery:
            for connection, names in self.held:
                nursery.start_soon(task, connection, names)


@asynccontextmanager
async def open_crowd(url: str, sessions: int) -> AsyncIterator[OpenCrowd]:
    """Open `sessions` sessions over at most `CONNECTIONS` connections.

    The sessions outlive the block unless they are closed in it.
    """
    async with AsyncExitStack() as stack:
        held = [
            (await stack.enter_async_context(open_connection(url)), list[str]())
            for _ in range(min(CONNECTIONS, sessions))
        ]
        crowd = OpenCrowd(held)
        await crowd.open_everywhere(sessions)
        yield crowd
