"""One engine of a pool, with the workers it made.

A pool has one generation that starts workers, and may have older ones that
are retired: they start nothing more, and end when their last worker is dead.
"""

import math
import random
import sys
from dataclasses import dataclass
from typing import Protocol

import trio

from qedtrio.workers.worker import Worker

__all__ = ["Bell", "Engine", "Generation", "Wear"]

SPREAD = 0.1
"""So much of its age limit a generation may live less or more, by chance, so
that pools which started together do not recycle together."""


class Engine(Protocol):
    """What makes workers; `ForkServer` and `ExecEngine` pass the same tests."""

    ready: trio.Event
    failure: str

    async def run(self) -> None:
        """Serve until dead; `failure` says why it never became ready."""

    async def spawn(self) -> Worker:
        """Make a worker that is sealed and serving."""

    def is_dead(self) -> bool:
        """Whether `run` is about to return, and nothing can be made any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wear:
    """When an engine is due to be replaced.

    Attributes:
        forks: Workers it may start.
        seconds: How long it may serve, give or take a tenth.
    """

    forks: int = sys.maxsize
    seconds: float = math.inf


class Bell:
    """Wakes everyone who waits for a change.

    Listen first, look at the state after, then wait: no change is missed.
    """

    def __init__(self) -> None:
        self._event = trio.Event()

    def ring(self) -> None:
        """Wake everyone who listens now."""
        self._event.set()
        self._event = trio.Event()

    def listen(self) -> trio.Event:
        """The event that the next ring sets."""
        return self._event


class Generation:
    """An engine and its workers, until all of them are dead.

    Args:
        engine: Not yet running.
        wear: When to replace it.
        beside: Whether it was opened to follow one that still served.

    Attributes:
        workers: Those not yet buried.
        starting: Workers on their way.
        slow: Those of them that take suspiciously long.
        forks: Workers asked for so far.
        retired: Whether it starts no more.
        settled: Set once it serves, or has failed to.
        ended: Set once the engine and every worker are dead.
    """

    def __init__(self, engine: Engine, wear: Wear, *, beside: bool) -> None:
        self.engine = engine
        self.beside = beside
        self.workers: set[Worker] = set()
        self.starting = 0
        self.slow = 0
        self.forks = 0
        self.retired = False
        self.settled = trio.Event()
        self.ended = trio.Event()
        self.began = trio.current_time()
        self._most_forks = wear.forks
        share = random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311  # no secret
        self.best_before = self.began + wear.seconds * share

    def is_worn(self) -> bool:
        """Whether it has started so many workers, or is so old, as it may."""
        return self.forks >= self._most_forks or trio.current_time() >= self.best_before

    def is_empty(self) -> bool:
        """Whether it has no workers, dead ones apart, and expects none."""
        self.prune()
        return not self.workers and not self.starting

    def prune(self) -> None:
        """Forget the workers that are buried."""
        self.workers = {w for w in self.workers if not w.buried.is_set()}
