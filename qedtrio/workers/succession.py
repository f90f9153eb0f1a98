"""Keeps an engine of a pool serving: restarts a dead one, replaces a worn one.

    run         opens generations one after the other
     └ _hold    one per generation: its engine, and `serve` beside it

A worn engine goes on serving until its successor is ready; then it is retired
and only looks after the workers it has. A successor that fails changes
nothing. Each generation holds an image of its own, so their number is bounded.
"""

import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum

import trio

from qedtrio.workers.generation import Bell, Engine, Generation, Wear
from qedtrio.workers.worker import Worker

__all__ = ["MOST_GENERATIONS", "PoolState", "Succession"]

FIRST_BACKOFF_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 30.0
STABLE_SECONDS = 10.0
"""An engine that lived this long does not count as failing again."""
MOST_GENERATIONS = 3
"""Images of one pool in memory; recycling waits for an old one to end."""

log = logging.getLogger(__name__)


class PoolState(StrEnum):
    """Where the pool stands."""

    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPED = "stopped"


class Succession:
    """The generations of one pool.

    Args:
        name: Of the pool, for the log.
        make_engine: Makes the next engine.
        wear: When an engine is due to be replaced.
        serve: Runs beside an engine that is ready; returns when its generation
            is retired and empty.
        fail: Told why nobody can be served, when that is so.
        bell: Rung at every change.

    Attributes:
        state: Where the pool stands.
        failure: Why nothing can be started; empty while something can.
        current: The generation that starts workers, if there is one.
        alive: Every generation that has not ended.
        orphans: Workers that do not die and outlived their generation.
        restarts: Engines opened because one had died.
        recycles: Engines replaced because they were worn.
        settled: Set once the pool first serves, or first fails to.
    """

    def __init__(
        self,
        name: str,
        make_engine: Callable[[], Engine],
        wear: Wear,
        *,
        serve: Callable[[Generation, trio.Nursery], Awaitable[None]],
        fail: Callable[[str], None],
        bell: Bell,
    ) -> None:
        self.state = PoolState.STARTING
        self.failure = ""
        self.current: Generation | None = None
        self.alive: list[Generation] = []
        self.orphans: set[Worker] = set()
        self.restarts = 0
        self.recycles = 0
        self.settled = trio.Event()
        self._name = name
        self._opened = False
        self._make_engine = make_engine
        self._wear = wear
        self._serve = serve
        self._fail = fail
        self._bell = bell

    async def run(self) -> None:
        """Keep one generation serving until cancelled; then all are dead."""
        backoff = 0.0
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    new = self._open(nursery)
                    await new.settled.wait()
                    if await self._wait_due(new):
                        backoff = 0.0
                        continue
                    lived = trio.current_time() - new.began
                    if lived > STABLE_SECONDS and not new.engine.failure:
                        backoff = 0.0
                    backoff = min(
                        LONGEST_BACKOFF_SECONDS, 2 * backoff or FIRST_BACKOFF_SECONDS
                    )
                    await self._pause(new.engine.failure, backoff)
        finally:
            self.state = PoolState.STOPPED

    def workers(self) -> list[Worker]:
        """Those of all generations, of the ended ones too, that are not buried."""
        self.prune()
        return [*self.orphans, *(w for g in self.alive for w in g.workers)]

    def prune(self) -> None:
        """Forget the workers that are buried."""
        self.orphans = {w for w in self.orphans if not w.buried.is_set()}
        for generation in self.alive:
            generation.prune()

    def _open(self, nursery: trio.Nursery) -> Generation:
        beside = self.current is not None
        if self._opened and not beside:
            self.restarts += 1
        self._opened = True
        new = Generation(self._make_engine(), self._wear, beside=beside)
        self.alive.append(new)
        nursery.start_soon(self._hold, new, nursery)
        return new

    async def _hold(self, generation: Generation, burials: trio.Nursery) -> None:
        try:
            try:
                await self._run(generation)
            except* Exception:  # costs a pool, and not the daemon
                log.exception("pool failed by a defect", extra={"pool": self._name})
                generation.engine.failure = "it failed by a defect of the daemon"
            generation.prune()
            for worker in generation.workers:
                burials.start_soon(worker.watch)
        finally:
            self._note_end(generation)

    async def _run(self, generation: Generation) -> None:
        async with trio.open_nursery() as nursery:

            async def run_engine() -> None:
                await generation.engine.run()
                if generation.retired:
                    log.error("retired pool died", extra={"pool": self._name})
                nursery.cancel_scope.cancel()

            nursery.start_soon(run_engine)
            await generation.engine.ready.wait()
            self._take_over(generation)
            await self._serve(generation, nursery)
            nursery.cancel_scope.cancel()

    def _take_over(self, generation: Generation) -> None:
        if self.current is not None:
            self.current.retired = True
            self.recycles += 1
        elif generation.beside:  # the one to be replaced was quicker to die
            self.restarts += 1
        self.current = generation
        self.state = PoolState.RUNNING
        self.failure = ""
        generation.settled.set()
        self.settled.set()
        self._bell.ring()
        log.info(
            "pool is running",
            extra={"pool": self._name, "generations": len(self.alive)},
        )

    def _note_end(self, generation: Generation) -> None:
        self.alive.remove(generation)
        self.orphans |= generation.workers
        if self.current is generation:
            self.current = None
            self.state = PoolState.BACKOFF
        generation.ended.set()
        generation.settled.set()
        self._bell.ring()

    async def _wait_due(self, generation: Generation) -> bool:
        """Wait until a generation is worn and another may be opened.

        Returns:
            Whether that came before its end.
        """
        with trio.move_on_at(generation.best_before):
            while not (generation.ended.is_set() or generation.is_worn()):
                await self._bell.listen().wait()
        while not generation.ended.is_set() and len(self.alive) >= MOST_GENERATIONS:
            await self._bell.listen().wait()
        return not generation.ended.is_set()

    async def _pause(self, failure: str, backoff: float) -> None:
        """Say what failed, and wait until the next attempt."""
        facts = {"pool": self._name, "why": failure, "backoff": backoff}
        if self.current is not None:
            log.warning("recycling failed, the old fork server goes on", extra=facts)
            with trio.move_on_after(backoff):
                await self.current.ended.wait()
            return
        self.state = PoolState.BACKOFF
        log.error("pool died", extra=facts)
        if failure:
            self.failure = failure
            self._fail(failure)
        self.settled.set()
        await trio.sleep(backoff)
