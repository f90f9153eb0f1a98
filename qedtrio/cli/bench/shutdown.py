"""How soon after SIGTERM a daemon full of sessions is dead, workers and all."""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import psutil
import trio

from qedtrio.cli.bench.crowd import open_crowd, read_status
from qedtrio.cli.bench.daemon import Daemon

__all__ = ["Crowd", "end_and_wait", "measure_crowd"]

DEATH_SECONDS = 30.0


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
