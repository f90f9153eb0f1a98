"""A pool: workers of one profile, a reserve of ready ones, and its supervision.

    Succession        keeps an engine serving, and replaces it when it is worn
     └ _look_after    one per generation of workers: keeps `ready_workers` idle
                      ones, and one for each waiting lease; once retired, only
                      waits for the end of the workers it has

A lease takes a ready worker or waits in line. The pool never gets a worker
back: whoever leased it kills it.
"""

import logging
from collections import deque
from collections.abc import Callable

import trio

from qedtrio.errors import QueueTimeoutError, WorkerError, WorkerStartError
from qedtrio.sandbox.cgroups import Cgroups
from qedtrio.workers.exec import ExecEngine
from qedtrio.workers.faults import Faults
from qedtrio.workers.fork import ForkServer
from qedtrio.workers.generation import Bell, Engine, Generation, Wear
from qedtrio.workers.profile import Profile
from qedtrio.workers.statistics import PoolStatistics, WorkerStatistics, describe
from qedtrio.workers.succession import PoolState, Succession
from qedtrio.workers.worker import Worker

__all__ = ["Pool", "PoolState", "PoolStatistics", "WorkerStatistics"]

FAILED_START_SECONDS = 0.1
"""Pause after a failed start, or a host out of descriptors is asked at once."""
SLOW_START_SECONDS = 2.0
"""A fork that takes longer may hang, and no longer holds up the next one."""
MOST_SLOW = 8
"""So many starts may hang before they do."""
PING_SECONDS = 2.0

log = logging.getLogger(__name__)


class Pool:
    """Leases workers of one profile.

    Args:
        profile: What its workers are.
        ready_workers: Idle ones to keep.
        max_workers: Live ones at most.
        state_dir: Existing folder for what must lie on the host.
        cgroups: Makes a control group for each leased worker; None for none.
        wear: When its fork server is replaced; the exec engine has none.
        faults: What goes wrong on purpose; None for nothing.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        ready_workers: int,
        max_workers: int,
        state_dir: str,
        cgroups: Cgroups | None = None,
        wear: Wear = Wear(),  # noqa: B008  # frozen
        faults: Faults | None = None,
    ) -> None:
        self.profile = profile
        self.cgroups = cgroups
        self._ready_workers = ready_workers
        self._max_workers = max_workers
        self._state_dir = state_dir
        self._faults = faults
        self._ready: deque[Worker] = deque()
        self._waiting: deque[_Waiter] = deque()
        self._failed_starts = 0
        self._bell = Bell()
        self._succession = Succession(
            profile.name,
            self._make_engine,
            wear if profile.engine == "fork" else Wear(),
            serve=self._look_after,
            fail=self._fail_waiting,
            bell=self._bell,
        )

    def __repr__(self) -> str:
        busy = len(self._workers()) - len(self._ready)
        return (
            f"<Pool {self.profile.name} [{self.state} | workers: {len(self._ready)}"
            f" ready, {busy} busy | queue: {len(self._waiting)}]>"
        )

    @property
    def state(self) -> PoolState:
        """Where it stands."""
        return self._succession.state

    @property
    def failure(self) -> str:
        """Why it cannot start workers; empty while it can."""
        return self._succession.failure

    # Supervision -------------------------------------------------------------

    async def run(self) -> None:
        """Keep the pool alive until cancelled; then all its workers are dead.

        A worker that does not die outlives its engine: it is watched on.
        """
        try:
            await self._succession.run()
        finally:
            self._fail_waiting("the pool is stopped")

    def _make_engine(self) -> Engine:
        make: Callable[..., Engine] = (
            ExecEngine if self.profile.engine == "exec" else ForkServer
        )
        return make(self.profile, self._state_dir, self._bell.ring, self._faults)

    async def wait_settled(self) -> None:
        """Wait until the pool first runs, or first fails to."""
        await self._succession.settled.wait()

    # Workers -----------------------------------------------------------------

    async def _look_after(self, generation: Generation, nursery: trio.Nursery) -> None:
        """Keep the reserve filled; once retired, wait for the last worker's end."""
        while True:
            changed = self._bell.listen()
            self._prune()
            if not generation.retired:
                self._start_wanted(generation, nursery)
            elif generation.is_empty():
                return
            else:
                for worker in self._surplus(generation):
                    self._ready.remove(worker)
                    nursery.start_soon(worker.release)
            await changed.wait()

    def _start_wanted(self, generation: Generation, nursery: trio.Nursery) -> None:
        # A worker seals itself while its fork server forks the next one.
        most = 4 if self.profile.engine == "exec" else 2
        idle = sum(worker in generation.workers for worker in self._ready)
        wanted = self._ready_workers + len(self._waiting) - idle
        busy = generation.starting - min(generation.slow, MOST_SLOW)
        for _ in range(min(self._room(), min(wanted, most) - busy)):
            generation.starting += 1
            generation.forks += 1
            done = trio.Event()
            nursery.start_soon(self._start_one, generation, done)
            if self.profile.engine == "fork":
                nursery.start_soon(self._count_slow, generation, done)

    async def _count_slow(self, generation: Generation, done: trio.Event) -> None:
        """Take a start that lasts for one that may hang."""
        with trio.move_on_after(SLOW_START_SECONDS):
            await done.wait()
            return
        generation.slow += 1
        self._bell.ring()
        await done.wait()
        generation.slow -= 1

    def _surplus(self, generation: Generation) -> list[Worker]:
        """Idle workers of a retired generation whose place others have taken."""
        count = len(self._ready) - self._ready_workers
        if self._room() <= 0:  # for the others to be started at all
            count = max(count, 1)
        idle = [w for w in self._ready if w in generation.workers]
        return idle[: max(count, 0)]

    async def _start_one(self, generation: Generation, done: trio.Event) -> None:
        try:
            worker = await generation.engine.spawn()
        except WorkerError as error:
            if generation.engine.is_dead():  # whoever waits is served by the next
                await trio.sleep_forever()  # which is until this one's end
            await trio.sleep(FAILED_START_SECONDS)
            log.warning(
                "worker did not start",
                extra={"pool": self.profile.name, "why": str(error)},
            )
            self._note_failed_start(str(error))
        else:
            self._failed_starts = 0
            generation.workers.add(worker)
            self._deliver(worker)
        finally:
            generation.starting -= 1
            done.set()
            self._bell.ring()

    def _note_failed_start(self, reason: str) -> None:
        """Fail the one it was for, and everyone when it was not the first."""
        self._failed_starts += 1
        if self._failed_starts > 1:
            self._fail_waiting(reason)
        elif self._waiting:
            self._waiting.popleft().fail(reason)

    def _deliver(self, worker: Worker) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.event.is_set():
                waiter.worker = worker
                waiter.event.set()
                return
        self._ready.append(worker)

    def _fail_waiting(self, reason: str) -> None:
        for waiter in self._waiting:
            waiter.fail(reason)
        self._waiting.clear()

    def _prune(self) -> None:
        self._succession.prune()
        self._ready = deque(w for w in self._ready if not w.gone.is_set())

    def _workers(self) -> list[Worker]:
        return self._succession.workers()

    def _starting(self) -> int:
        return sum(generation.starting for generation in self._succession.alive)

    def _room(self) -> int:
        """How many more workers may be started."""
        return self._max_workers - len(self._workers()) - self._starting()

    async def lease(self, wait_seconds: float) -> Worker:
        """Take a fresh worker; it is the caller's to kill.

        Cancellation leaves the worker to somebody else.

        Args:
            wait_seconds: The longest wait in line.

        Raises:
            WorkerStartError: The pool cannot start workers; says why.
            QueueTimeoutError: None became free in time.
        """
        worker = await self._take(wait_seconds)
        if self._faults is not None:
            self._faults.note_lease(worker)
        return worker

    async def _take(self, wait_seconds: float) -> Worker:
        while self._ready and not self._waiting:
            worker = self._ready.pop()  # of the newest generation
            self._bell.ring()
            if not worker.gone.is_set():
                return worker
        if self.failure or self.state is PoolState.STOPPED:
            raise WorkerStartError(
                f"pool {self.profile.name}: {self.failure or 'it is stopped'}"
            )
        waiter = _Waiter()
        self._waiting.append(waiter)
        self._bell.ring()
        try:
            with trio.move_on_after(wait_seconds):
                await waiter.event.wait()
        except trio.Cancelled:
            self._give_up(waiter)
            raise
        if not waiter.event.is_set():
            self._give_up(waiter)
            raise QueueTimeoutError(wait_seconds)
        if waiter.worker is None:
            raise WorkerStartError(f"pool {self.profile.name}: {waiter.failure}")
        return waiter.worker

    def _give_up(self, waiter: "_Waiter") -> None:
        if waiter.worker is not None:
            self._deliver(waiter.worker)  # it has served nobody yet
        elif waiter in self._waiting:
            self._waiting.remove(waiter)

    # Observation -------------------------------------------------------------

    def unburied(self) -> frozenset[Worker]:
        """Workers that live, or are not confirmed dead."""
        self._prune()
        return frozenset(self._workers())

    async def check(self) -> str:
        """Ask a real worker for a sign of life.

        Returns:
            Why the pool cannot work; empty when it can.
        """
        if self.state is not PoolState.RUNNING:
            return self.failure or f"it is {self.state}"
        if not self._ready:  # all are leased, or the next ones are on their way
            return ""
        worker = self._ready.popleft()
        try:
            with trio.fail_after(PING_SECONDS):
                await worker.request({"op": "ping"})
        except (WorkerError, trio.TooSlowError) as error:
            with trio.CancelScope(shield=True):
                await worker.kill()
            return f"a ready worker did not answer: {error}"
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await worker.kill()
            raise
        self._deliver(worker)
        self._bell.ring()
        return ""

    def leased(self) -> list[Worker]:
        """The live workers that serve somebody."""
        self._prune()
        idle = set(self._ready)
        return [w for w in self._workers() if w not in idle and not w.gone.is_set()]

    def statistics(self) -> PoolStatistics:
        """The pool at this moment."""
        self._prune()
        idle = set(self._ready)
        workers = self._workers()
        dying = sum(worker.is_dying for worker in workers)
        return PoolStatistics(
            state=self.state,
            engine=self.profile.engine,
            ready=len(idle),
            busy=len(workers) - len(idle) - dying,
            dying=dying,
            starting=self._starting(),
            restarts=self._succession.restarts,
            queue=len(self._waiting),
            failure=self.failure,
            workers=tuple(describe(w, idle=w in idle) for w in workers),
            generations=len(self._succession.alive),
            recycles=self._succession.recycles,
        )


class _Waiter:
    def __init__(self) -> None:
        self.event = trio.Event()
        self.worker: Worker | None = None
        self.failure = ""

    def fail(self, reason: str) -> None:
        self.failure = reason
        self.event.set()
