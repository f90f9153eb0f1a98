"""A pool: workers of one profile, a reserve of ready ones, and its supervision.

    run          holds the engine, restarts it with back-off when it dies
     └ _refill   keeps `ready_workers` idle ones, and one for each waiting lease

A lease takes a ready worker or waits in line. The pool never gets a worker
back: whoever leased it kills it.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import psutil
import trio

from qedtrio.errors import QueueTimeoutError, WorkerError, WorkerStartError
from qedtrio.sandbox.cgroups import Cgroups
from qedtrio.workers.exec import ExecEngine
from qedtrio.workers.fork import ForkServer
from qedtrio.workers.profile import Profile
from qedtrio.workers.worker import Worker

__all__ = ["Engine", "Pool", "PoolState", "PoolStatistics", "WorkerStatistics"]

FIRST_BACKOFF_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 30.0
STABLE_SECONDS = 10.0
"""An engine that lived this long does not count as failing again."""
PING_SECONDS = 2.0

log = logging.getLogger(__name__)


class Engine(Protocol):
    """What makes workers; `ForkServer` and `ExecEngine` pass the same tests."""

    ready: trio.Event
    failure: str

    async def run(self) -> None:
        """Serve until dead; `failure` says why it never became ready."""

    async def spawn(self) -> Worker:
        """Make a worker that is sealed and serving."""


class PoolState(StrEnum):
    """Where the pool stands."""

    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPED = "stopped"


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
    """A pool at this moment; `dying` are killed, and not yet confirmed dead."""

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


class Pool:
    """Leases workers of one profile.

    Args:
        profile: What its workers are.
        ready_workers: Idle ones to keep.
        max_workers: Live ones at most.
        state_dir: Existing folder for what must lie on the host.
        cgroups: Makes a control group for each leased worker; None for none.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        ready_workers: int,
        max_workers: int,
        state_dir: str,
        cgroups: Cgroups | None = None,
    ) -> None:
        self.profile = profile
        self.cgroups = cgroups
        self.state = PoolState.STARTING
        self.failure = ""
        self._ready_workers = ready_workers
        self._max_workers = max_workers
        self._state_dir = state_dir
        self._ready: deque[Worker] = deque()
        self._workers: set[Worker] = set()
        self._waiting: deque[_Waiter] = deque()
        self._starting = 0
        self._restarts = 0
        self._changed = trio.Event()
        self._settled = trio.Event()

    def __repr__(self) -> str:
        busy = len(self._workers) - len(self._ready)
        return (
            f"<Pool {self.profile.name} [{self.state} | workers: {len(self._ready)}"
            f" ready, {busy} busy | queue: {len(self._waiting)}]>"
        )

    # Supervision -------------------------------------------------------------

    async def run(self) -> None:
        """Keep the pool alive until cancelled; then all its workers are dead.

        A worker that does not die outlives its engine: it is watched on here.
        """
        async with trio.open_nursery() as burials:
            await self._supervise(burials)

    async def _supervise(self, burials: trio.Nursery) -> None:
        backoff = 0.0
        try:
            while True:
                began = trio.current_time()
                engine = self._make_engine()
                await self._hold(engine)
                for worker in self.unburied():
                    burials.start_soon(worker.watch)
                if trio.current_time() - began > STABLE_SECONDS and not engine.failure:
                    backoff = 0.0
                backoff = min(
                    LONGEST_BACKOFF_SECONDS, 2 * backoff or FIRST_BACKOFF_SECONDS
                )
                self._enter_backoff(engine.failure, backoff)
                await trio.sleep(backoff)
                self._restarts += 1
        finally:
            self.state = PoolState.STOPPED
            self._fail_waiting("the pool is stopped")

    def _make_engine(self) -> Engine:
        make: Callable[..., Engine] = (
            ExecEngine if self.profile.engine == "exec" else ForkServer
        )
        return make(self.profile, self._state_dir, self._note_change)

    async def _hold(self, engine: Engine) -> None:
        async with trio.open_nursery() as nursery:

            async def run_engine() -> None:
                await engine.run()
                nursery.cancel_scope.cancel()

            nursery.start_soon(run_engine)
            await engine.ready.wait()
            self.state = PoolState.RUNNING
            self.failure = ""
            self._settled.set()
            log.info("pool is running", extra={"pool": self.profile.name})
            await self._refill(engine, nursery)

    def _enter_backoff(self, failure: str, backoff: float) -> None:
        self.state = PoolState.BACKOFF
        self._ready.clear()
        log.error(
            "pool died",
            extra={"pool": self.profile.name, "why": failure, "backoff": backoff},
        )
        if failure:
            self.failure = failure
            self._fail_waiting(failure)
        self._settled.set()

    async def wait_settled(self) -> None:
        """Wait until the pool first runs, or first fails to."""
        await self._settled.wait()

    # Workers -----------------------------------------------------------------

    async def _refill(self, engine: Engine, nursery: trio.Nursery) -> None:
        # A worker seals itself while its fork server forks the next one.
        most = 4 if self.profile.engine == "exec" else 2
        while True:
            self._prune()
            wanted = self._ready_workers + len(self._waiting) - len(self._ready)
            room = self._max_workers - len(self._workers)
            while self._starting < min(wanted, room, most):
                self._starting += 1
                nursery.start_soon(self._start_one, engine)
            self._changed = trio.Event()
            await self._changed.wait()

    async def _start_one(self, engine: Engine) -> None:
        try:
            worker = await engine.spawn()
        except WorkerError as error:
            # A pause, or a host out of descriptors would be asked again at once;
            # and if the engine is dying, it is cancelled here, and whoever waits
            # is served by the next one.
            await trio.sleep(FIRST_BACKOFF_SECONDS)
            log.warning(
                "worker did not start",
                extra={"pool": self.profile.name, "why": str(error)},
            )
            self._fail_waiting(str(error))
        else:
            self._workers.add(worker)
            self._deliver(worker)
        finally:
            self._starting -= 1
            self._note_change()

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
            waiter.failure = reason
            waiter.event.set()
        self._waiting.clear()

    def _note_change(self) -> None:
        self._changed.set()

    def _prune(self) -> None:
        self._workers = {w for w in self._workers if not w.buried.is_set()}
        self._ready = deque(w for w in self._ready if not w.gone.is_set())

    async def lease(self, wait_seconds: float) -> Worker:
        """Take a fresh worker; it is the caller's to kill.

        Args:
            wait_seconds: The longest wait in line.

        Raises:
            WorkerStartError: The pool cannot start workers; says why.
            QueueTimeoutError: None became free in time.
        """
        while self._ready and not self._waiting:
            worker = self._ready.popleft()
            self._note_change()
            if not worker.gone.is_set():
                return worker
        if self.failure or self.state is PoolState.STOPPED:
            raise WorkerStartError(
                f"pool {self.profile.name}: {self.failure or 'it is stopped'}"
            )
        waiter = _Waiter()
        self._waiting.append(waiter)
        self._note_change()
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
        return frozenset(self._workers)

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
        return ""

    def leased(self) -> list[Worker]:
        """The live workers that serve somebody."""
        self._prune()
        idle = set(self._ready)
        return [w for w in self._workers if w not in idle and not w.gone.is_set()]

    def statistics(self) -> PoolStatistics:
        """The pool at this moment."""
        self._prune()
        idle = set(self._ready)
        dying = sum(worker.is_dying for worker in self._workers)
        return PoolStatistics(
            state=self.state,
            engine=self.profile.engine,
            ready=len(idle),
            busy=len(self._workers) - len(idle) - dying,
            dying=dying,
            starting=self._starting,
            restarts=self._restarts,
            queue=len(self._waiting),
            failure=self.failure,
            workers=tuple(_describe(w, idle=w in idle) for w in self._workers),
        )


class _Waiter:
    def __init__(self) -> None:
        self.event = trio.Event()
        self.worker: Worker | None = None
        self.failure = ""


def _describe(worker: Worker, *, idle: bool) -> WorkerStatistics:
    try:
        memory = psutil.Process(worker.pid).memory_info().rss
    except psutil.Error:
        memory = 0
    return WorkerStatistics(
        pid=worker.pid,
        state=_state(worker, idle=idle),
        session_id=worker.session_id,
        age_seconds=trio.current_time() - worker.started_at,
        memory_bytes=memory,
    )


def _state(worker: Worker, *, idle: bool) -> str:
    if worker.is_dying:
        return "dying"
    if worker.gone.is_set():
        return "exited"
    return "idle" if idle else "busy"
