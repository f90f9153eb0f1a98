"""Faults of a soak: those the daemon injects, and workers killed under it.

The daemon is asked for injected faults on its command line. It draws each
with its rate whenever it starts a worker; together about one start in twenty
is hit, and those that cost a whole pool are the rarest.
"""

import os
import random
import signal
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import trio

from qedtrio.cli.bench.crowd import Status, WorkerSeen, read_status
from qedtrio.cli.calls import RefusedError
from qedtrio.cli.http import TransportError
from qedtrio.workers.faults import Fault

__all__ = ["EXPLAINED", "Kill", "Kills", "injection", "kill_now_and_then", "settings"]

RATES = {
    Fault.START_FAILS: 0.015,
    Fault.WORKER_DIES: 0.01,
    Fault.NO_DESCRIPTORS: 0.004,
    Fault.RIGHTS_LOST: 0.002,
    Fault.NAMESPACE_LOST: 0.002,
    Fault.ANSWER_LOST: 0.004,
    Fault.NO_PIDFD: 0.004,
    Fault.NO_MEMORY: 0.004,
    Fault.NO_FORK: 0.003,
    Fault.START_HANGS: 0.001,
    Fault.SERVER_DIES: 0.0005,
    Fault.LAUNCHER_DIES: 0.0005,
}
"""Kind of injected fault → share of the worker starts that it hits."""

SETTINGS = {
    "start_seconds": "2",  # what a start that hangs costs
    "recycle_forks": "500",  # often enough for it to happen in the middle
}
"""Keys of the science pool in a soak, as the environment spells their values."""

EXPLAINED = frozenset({"worker_start_failed", "worker_lost", "queue_timeout"})
"""Codes of problems that the faults above explain, and no others."""

KILL_SECONDS = 1.0
"""Between two kills."""
RECENT_KILLS = 256
SLACK_SECONDS = 1.0
"""By how much a status may be older than the kill that it led to."""


def injection() -> list[str]:
    """Make the arguments of `serve` that ask for faults."""
    return [f"--inject={kind}={rate:g}" for kind, rate in RATES.items()]


def settings() -> dict[str, str]:
    """Make the environment of a daemon whose faults must not cost much time."""
    return {f"QEDTRIO_POOLS__SCIENCE__{k.upper()}": v for k, v in SETTINGS.items()}


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed; `session_id` is None when it had none."""

    at: float
    session_id: str | None


@dataclass(slots=True)
class Kills:
    """How many, and the last of them, to explain what came of them.

    Attributes:
        is_daemon_killing: Whether the daemon was asked to kill workers, too.
        count: Of those that the soak killed.
    """

    is_daemon_killing: bool = False
    count: int = 0
    recent: deque[Kill] = field(default_factory=lambda: deque(maxlen=RECENT_KILLS))

    def add(self, session_id: str | None) -> None:
        """Note that the worker of this session, or of none, is about to be killed."""
        self.count += 1
        self.recent.append(Kill(trio.current_time(), session_id))

    def explain(self, session_id: str | None, began: float) -> bool:
        """Whether a run since `began` may have lost its worker to a kill.

        Args:
            session_id: None for a stateless run.
            began: Trio-clock time.
        """
        return self.is_daemon_killing or any(
            kill.at >= began - SLACK_SECONDS
            if kill.session_id is None
            else kill.session_id == session_id
            for kill in self.recent
        )


async def kill_now_and_then(url: str, kills: Kills) -> None:
    """Kill a random worker of any pool every so often, until cancelled."""
    while True:
        await trio.sleep(KILL_SECONDS)
        with suppress(TransportError, RefusedError):
            kill_one(await read_status(url), kills)


def kill_one(status: Status, kills: Kills) -> None:
    """Kill one of the workers in `status`, if it is still ours."""
    workers = [w for pool in status.pools.values() for w in pool.workers]
    if not workers:
        return
    chosen = random.choice(worth_killing(workers))  # noqa: S311  # no secret
    with suppress(OSError, psutil.Error):
        pidfd = os.pidfd_open(chosen.pid)
        try:
            # Its id may be another's by now: what is killed must be below us.
            if is_below_us(psutil.Process(chosen.pid).parents()):
                kills.add(chosen.session_id)
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def worth_killing(workers: Sequence[WorkerSeen]) -> Sequence[WorkerSeen]:
    """Choose those that serve a session, every other time; else all."""
    serving = [worker for worker in workers if worker.session_id]
    return serving if serving and random.random() < 0.5 else workers  # noqa: S311  # no secret


def is_below_us(parents: Iterable[psutil.Process]) -> bool:
    """Whether this process is among `parents`."""
    return any(parent.pid == os.getpid() for parent in parents)
