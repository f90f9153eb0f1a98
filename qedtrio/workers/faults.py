"""Faults on purpose: which start of a worker goes wrong, and how.

A test-only switch: neither the HTTP API nor the configuration reaches it, and
without it no message and no code path knows of faults. Each one is real: the
process is killed, the descriptors are used up, the memory is refused.
"""

import random
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

import trio

from qedtrio.workers.child.faults import starved
from qedtrio.workers.worker import Worker

__all__ = ["INSIDE", "SPARE", "Fault", "Faults", "starved_by"]

LONGEST_LIFE_SECONDS = 0.2
"""A worker that is to die does so within this time after its lease."""


class Fault(StrEnum):
    """What goes wrong when a worker is started, or afterwards."""

    START_FAILS = "start_fails"
    """The worker exits before it is born."""
    START_HANGS = "start_hangs"
    """The worker stops before it is born."""
    SERVER_DIES = "server_dies"
    """The fork server is killed between a fork and its answer."""
    LAUNCHER_DIES = "launcher_dies"
    """The launcher is killed while a worker starts."""
    NO_DESCRIPTORS = "no_descriptors"
    """The daemon has none for the worker's socket."""
    RIGHTS_LOST = "rights_lost"
    """The fork server has none for the worker's socket."""
    NAMESPACE_LOST = "namespace_lost"
    """The fork server has none for the worker's namespace."""
    ANSWER_LOST = "answer_lost"
    """The daemon has none for the worker's pidfd."""
    NO_PIDFD = "no_pidfd"
    """The fork server has none for the worker's pidfd."""
    NO_MEMORY = "no_memory"
    """The worker gets no memory before it is born."""
    NO_FORK = "no_fork"
    """The fork server cannot fork."""
    WORKER_DIES = "worker_dies"
    """The worker is killed from outside soon after its lease."""


INSIDE = frozenset(
    {
        Fault.START_FAILS,
        Fault.START_HANGS,
        Fault.SERVER_DIES,
        Fault.NO_PIDFD,
        Fault.NO_MEMORY,
        Fault.NO_FORK,
    }
)
"""Those that a fork server makes; the others are the daemon's own."""

SPARE: dict[Fault | None, int] = {Fault.RIGHTS_LOST: 0, Fault.NAMESPACE_LOST: 1}
"""Those that leave the fork server so many descriptors for one start."""


class Faults:
    """Draws faults; the same rates and seed draw the same ones.

    Args:
        rates: Share of the worker starts that each fault hits, 0 to 1; all
            together at most 1.
        seed: Of the draws.

    Raises:
        ValueError: A rate is out of range.
    """

    def __init__(
        self, rates: Mapping[Fault, float] | None = None, seed: int = 0
    ) -> None:
        self._rates = dict(rates or {})
        if not all(rate >= 0 for rate in self._rates.values()):
            raise ValueError("a rate is below 0")
        if not sum(self._rates.values()) <= 1:
            raise ValueError("the rates add up to more than 1")
        self._random = random.Random(seed)  # noqa: S311  # no secret
        self._forced: deque[Fault] = deque()
        self._leases: dict[Worker, trio.Event] = {}

    def next(self, fault: Fault) -> None:
        """Let the next start be hit by this one, after those named before."""
        self._forced.append(fault)

    def draw(self) -> Fault | None:
        """The fault of one start; None for a start that goes well."""
        if self._forced:
            return self._forced.popleft()
        point = self._random.random()
        for fault, rate in self._rates.items():
            if point < rate:
                return fault
            point -= rate
        return None

    async def wait_doom(self, worker: Worker) -> None:
        """Wait until a worker that is to die has been leased, and a little more."""
        self._leases[worker] = trio.Event()
        try:
            await self._leases[worker].wait()
        finally:
            del self._leases[worker]
        await trio.sleep(self._random.uniform(0, LONGEST_LIFE_SECONDS))

    def note_lease(self, worker: Worker) -> None:
        """Tell that a worker was leased, or has ended without."""
        if worker in self._leases:
            self._leases[worker].set()


@contextmanager
def starved_by(fault: Fault | None) -> Iterator[None]:
    """Leave no descriptor to open within the block when that is the fault."""
    if fault is not Fault.NO_DESCRIPTORS:
        yield
        return
    with starved():
        yield
