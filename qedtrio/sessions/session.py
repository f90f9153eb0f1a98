"""One session: the task that owns its worker, and the line of its runs.

    create → task: lease a worker → open → … → close, expiry or shutdown → kill
    run    → the asking task waits its turn, then executes on the worker

The task's scope is the session's life: its deadline moves with use, and
cancelling it is the close. Whatever ends it, its `finally` kills the worker.
A run that lost the worker leaves none; the next run leases a fresh one.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from qedtrio.config import Limits
from qedtrio.errors import (
    OverloadedError,
    QueueTimeoutError,
    ReleaseFailedError,
    SessionClosedError,
    WorkerError,
    WorkerLostError,
)
from qedtrio.results import RunResult
from qedtrio.sessions.execution import Execution
from qedtrio.sessions.limits import run_deadline
from qedtrio.sessions.model import (
    OnOutput,
    RunRequest,
    SessionInfo,
    SessionOptions,
    SessionState,
)
from qedtrio.workers.leases import lease_worker
from qedtrio.workers.pool import Pool
from qedtrio.workers.statistics import resident_bytes
from qedtrio.workers.worker import Worker

__all__ = ["Session"]

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """A client's interpreter state.

    Args:
        session_id: Its name.
        options: What it was opened with.
        pool: Where its workers come from.
        configured: The daemon's limits.
        limits: Those in force here.
        principal: Whose it is.
    """

    session_id: str
    options: SessionOptions
    pool: Pool
    configured: Limits
    limits: Mapping[str, float]
    principal: str = ""
    state: SessionState = SessionState.STARTING
    why_closed: str = ""
    opened: trio.Event = field(default_factory=trio.Event)
    closed: trio.Event = field(default_factory=trio.Event)
    failure: BaseException | None = None
    _release_failed: bool = False
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _turn: trio.StrictFIFOLock = field(default_factory=trio.StrictFIFOLock)
    _worker: Worker | None = None
    _current: Execution | None = None
    _created: float = field(default_factory=trio.current_time)
    _created_at: float = field(default_factory=time.time)
    _used: float = field(default_factory=trio.current_time)
    _untold: bool = False
    _runs: int = 0
    _cpu_seconds: float = 0.0

    # Life --------------------------------------------------------------------

    async def live(self) -> None:
        """Open, stay until closed or expired, and release the worker."""
        try:
            with self._scope:
                await self._start()
                # A run moves the end without touching a timer; hence the loop.
                while (end := self._end()) > trio.current_time():  # noqa: ASYNC110
                    await trio.sleep_until(end)
            self.why_closed = self.why_closed or "it expired"
        finally:
            self.why_closed = self.why_closed or "the daemon is shutting down"
            self.state = SessionState.CLOSING
            with trio.CancelScope(shield=True):
                await self.release()

    async def _start(self) -> None:
        try:
            self._worker = await self._lease()
        except (WorkerError, QueueTimeoutError) as error:
            self.failure = error
            self.why_closed = "it could not start"
            self._scope.cancel()
            await trio.lowlevel.checkpoint()
        self.state = SessionState.OPEN
        self._used = trio.current_time()  # a start that took long was no idleness
        self.opened.set()

    async def _lease(self) -> Worker:
        terms = {"limits": dict(self.limits), "seed": self.options.seed}
        worker = await lease_worker(
            self.pool, terms, wait_seconds=self.configured.queue_seconds
        )
        worker.session_id = self.session_id
        return worker

    def _end(self) -> float:
        """When it ends from its age and its last use, as of now."""
        used = self._used if self._current is None else trio.current_time()
        return min(self._created + self._lifetime_seconds, used + self._idle_seconds)

    @property
    def _idle_seconds(self) -> float:
        return self.options.idle_seconds or self.configured.idle_seconds

    @property
    def _lifetime_seconds(self) -> float:
        return self.options.lifetime_seconds or self.configured.lifetime_seconds

    def close(self, why: str) -> None:
        """Ask for the end; `closed` tells when the worker is dead."""
        self.why_closed = self.why_closed or why
        self.state = SessionState.CLOSING
        self._scope.cancel()

    def is_orphan(self) -> bool:
        """Whether it ended but its worker did not die."""
        return self._release_failed

    async def release(self) -> None:
        """Kill the worker; on failure stay in `closing`, for another try."""
        if self._worker is not None:
            try:
                await self._worker.kill()
            except ReleaseFailedError:
                log.exception(
                    "session not released", extra={"session": self.session_id}
                )
                self._release_failed = True
                self.opened.set()
                self.closed.set()
                return
        self._release_failed = False  # not before: others ask meanwhile
        self._worker = None
        self.state = SessionState.CLOSED
        self.opened.set()
        self.closed.set()

    async def wait_released(self) -> None:
        """Wait until an orphan's worker dies after all; the pool goes on killing it."""
        if self._worker is not None:
            await self._worker.buried.wait()
            await self.release()

    # Runs --------------------------------------------------------------------

    async def run(
        self, request: RunRequest, on_output: OnOutput | None = None
    ) -> RunResult:
        """Wait for a turn, in order of arrival, and run.

        Raises:
            OverloadedError: Too many wait already.
            QueueTimeoutError: No turn in time.
            SessionClosedError: The session ended first.
            WorkerLostError: The state is gone by no act of the code.
            WorkerStartError: The lost worker could not be replaced.
        """
        # A deadline out of range is refused before it waits.
        run_deadline(self.configured, self.limits, request.deadline_seconds)
        arrived = trio.current_time()
        await self._take_turn()
        try:
            self._current = Execution(
                worker=await self._ready_worker(),
                request=request,
                configured=self.configured,
                limits=self.limits,
                arrived=arrived,
                on_output=on_output,
            )
            result = await self._execute(self._current)
        finally:
            self._current = None
            self._used = trio.current_time()
            self._turn.release()
        self._runs += 1
        self._cpu_seconds += result.cpu_seconds
        return result

    async def _take_turn(self) -> None:
        waiting = self._turn.statistics().tasks_waiting
        if waiting >= self.configured.waiting_runs:
            raise OverloadedError(f"{waiting} runs wait in this session")
        with suppress(trio.WouldBlock):
            self._turn.acquire_nowait()  # the usual case, without a trip to the loop
            return
        with trio.move_on_after(self.configured.queue_seconds) as scope:
            await self._turn.acquire()
        if scope.cancelled_caught:
            raise QueueTimeoutError(self.configured.queue_seconds)

    async def _ready_worker(self) -> Worker:
        self._refuse_closed()
        worker = self._worker
        if self._untold:
            self._untold = False
            raise WorkerLostError("the last run was cancelled and had to be killed")
        if worker is None:
            worker = self._worker = await self._lease()
        elif worker.gone.is_set() and worker.watched.ending is None:
            # Between runs, so no result told of it: say so, once. Where the watch
            # killed it for what its code did, the run will find that out.
            await self._drop_worker()
            raise WorkerLostError("the worker died between runs; its state is gone")
        return worker

    async def _execute(self, execution: Execution) -> RunResult:
        try:
            result = await execution.run()
        except WorkerLostError:
            self._refuse_closed()  # the close killed it
            raise
        except trio.Cancelled:
            self._untold = execution.worker.gone.is_set()  # nobody listens any more
            raise
        finally:
            if execution.worker.gone.is_set():
                self._worker = None
        if result.state == "lost":
            self._refuse_closed()
            await self._drop_worker()
        return result

    async def _drop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.kill()

    def _refuse_closed(self) -> None:
        if self.state is not SessionState.OPEN:
            raise SessionClosedError(self.session_id, self.why_closed)

    async def interrupt(self) -> bool:
        """Interrupt the current run and wait until it ended, if it lets us.

        Returns:
            Whether a run was interrupted; False too when it does not react,
            in which case its deadline will end it.
        """
        execution = self._current
        if execution is None:
            return False
        return await execution.interrupt()

    # Observation -------------------------------------------------------------

    def info(self, tier: str) -> SessionInfo:
        """Describe the session to its client."""
        now = trio.current_time()
        idle = 0.0 if self._current is not None else now - self._used
        return SessionInfo(
            session_id=self.session_id,
            state=self.state,
            pool=self.pool.profile.name,
            tier=tier,
            created_at=self._created_at,
            expires_at=time.time() + max(0.0, self._end() - now),
            limits=dict(self.limits),
            runs=self._runs,
            memory_bytes=resident_bytes(self._worker) if self._worker else 0,
            cpu_seconds=self._cpu_seconds,
            idle_seconds=idle,
        )
