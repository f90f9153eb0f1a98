"""All sessions of the daemon: opening, finding, closing, and their receipts.

Each session is a task in the nursery of `run`. A closed session leaves a
receipt: its id is spent, a second close is answered, and no payload is kept.
"""

import logging
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import trio

from qedtrio.config import Limits
from qedtrio.errors import (
    DrainingError,
    OverloadedError,
    QuotaExceededError,
    ReleaseFailedError,
    RequestError,
    SessionClosedError,
    SessionConflictError,
    SessionNotFoundError,
)
from qedtrio.results import RunResult
from qedtrio.sessions.limits import effective_limits, run_deadline
from qedtrio.sessions.model import (
    OnOutput,
    RunRequest,
    SessionInfo,
    SessionOptions,
    SessionState,
)
from qedtrio.sessions.once import Once
from qedtrio.sessions.session import Session
from qedtrio.workers.memory import MemoryGate
from qedtrio.workers.pool import Pool

__all__ = ["SessionStatistics", "Sessions"]

RECEIPTS = 100_000
"""Closed sessions remembered; an id forgotten after that many could be reused."""

CLOSE_SECONDS = 15.0
"""A close waits this long; longer than a burial and a lease together."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """Sessions by state; `orphans` hold a worker that does not die."""

    live: int
    starting: int
    closing: int
    orphans: int
    runs: int


class Sessions:
    """Opens, runs and closes sessions.

    Args:
        pools: By name.
        default_pool: For sessions that name none.
        limits: The configured ones.
        gate: Asked whether there is memory for more; None to admit all.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool],
        default_pool: str,
        limits: Limits,
        gate: MemoryGate | None = None,
    ) -> None:
        self._gate = gate
        self._pools = pools
        self._default_pool = default_pool
        self._limits = limits
        self._sessions: dict[str, Session] = {}
        self._receipts: OrderedDict[str, str] = OrderedDict()
        self._nursery: trio.Nursery | None = None
        self._draining = False
        self._active: set[trio.CancelScope] = set()
        self._idle = trio.Event()
        self._runs = 0

    def __repr__(self) -> str:
        s = self.statistics()
        return (
            f"<Sessions [{s.live} live, {s.starting} starting, {s.closing} closing,"
            f" {s.orphans} orphans]>"
        )

    async def run_forever(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Hold every session's task until cancelled; then all are released."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    # Opening and closing -----------------------------------------------------

    async def create(
        self, session_id: str | None, options: SessionOptions, principal: str = ""
    ) -> tuple[SessionInfo, bool]:
        """Open a session, or find the same one again.

        Cancellation of the caller does not cancel the opening.

        Args:
            session_id: Its name; None for a fresh one.
            options: What the client chose.
            principal: Whose session it is; "" for anonymous.

        Returns:
            The session, and whether it is new.

        Raises:
            SessionConflictError: The id is taken by other options, or spent.
            WorkerStartError: No worker could be started.
            OverloadedError: There are too many sessions, or too little memory.
            QuotaExceededError: The principal has too many.
            DrainingError: The daemon is shutting down.
            RequestError: An option is unknown or out of range.
        """
        session_id = session_id or uuid.uuid4().hex
        session = self._sessions.get(session_id)
        new = session is None
        if session is None:
            session = self._open(session_id, options, principal)
        elif session.options != options:
            raise SessionConflictError(session_id, "is open with other options")
        await session.opened.wait()
        if session.failure is not None:
            raise session.failure
        if session.state is not SessionState.OPEN:
            raise SessionClosedError(session_id, session.why_closed)
        return session.info(session.pool.profile.tier), new

    def _open(
        self, session_id: str, options: SessionOptions, principal: str
    ) -> Session:
        if self._draining:
            raise DrainingError
        if session_id in self._receipts:
            raise SessionConflictError(session_id, "was closed; its id is spent")
        if len(self._sessions) >= self._limits.sessions:
            raise OverloadedError(f"{len(self._sessions)} sessions are open")
        self._refuse_over_quota(principal)
        self._refuse_short_memory()
        session = Session(
            session_id=session_id,
            options=options,
            pool=self._pool(options),
            configured=self._limits,
            limits=effective_limits(self._limits, options.limits),
            principal=principal,
        )
        _check_duration(
            "$.idle_seconds", options.idle_seconds, self._limits.idle_seconds
        )
        _check_duration(
            "$.lifetime_seconds",
            options.lifetime_seconds,
            self._limits.lifetime_seconds,
        )
        assert self._nursery is not None
        self._sessions[session_id] = session
        self._nursery.start_soon(self._keep, session)
        return session

    def _refuse_over_quota(self, principal: str) -> None:
        most = self._limits.sessions_per_principal
        owned = sum(s.principal == principal for s in self._sessions.values())
        if owned >= most:
            raise QuotaExceededError(f"{owned} sessions are open, of {most} allowed")

    def _refuse_short_memory(self) -> None:
        if self._gate is not None and (reason := self._gate.refusal()):
            raise OverloadedError(reason)

    def _pool(self, options: SessionOptions) -> Pool:
        name = options.pool or self._default_pool
        if name not in self._pools:
            raise RequestError("$.pool", f"must be one of {', '.join(self._pools)}")
        return self._pools[name]

    async def _keep(self, session: Session) -> None:
        try:
            await session.live()
            await session.wait_released()
        finally:
            if not session.is_orphan():
                self._forget(session)

    def _forget(self, session: Session) -> None:
        if self._sessions.pop(session.session_id, None) is None:
            return
        if session.failure is None:  # an id that never opened is not spent
            self._receipts[session.session_id] = session.why_closed
        while len(self._receipts) > RECEIPTS:
            self._receipts.popitem(last=False)
        log.info(
            "session closed",
            extra={"session": session.session_id, "why": session.why_closed},
        )

    def find(self, session_id: str) -> Session:
        """Find an open session.

        Raises:
            SessionClosedError: It was closed.
            SessionNotFoundError: There never was one.
        """
        if session := self._sessions.get(session_id):
            return session
        if session_id in self._receipts:
            raise SessionClosedError(session_id, self._receipts[session_id])
        raise SessionNotFoundError(session_id)

    def get(self, session_id: str) -> SessionInfo:
        """Describe a session; raises as `find`."""
        session = self.find(session_id)
        return session.info(session.pool.profile.tier)

    def list(self) -> list[SessionInfo]:
        """Describe all sessions."""
        return [s.info(s.pool.profile.tier) for s in self._sessions.values()]

    async def close(self, session_id: str) -> Literal["closed", "already_closed"]:
        """Close a session; returns once its worker is confirmed dead.

        Raises:
            ReleaseFailedError: The worker does not die; close again later.
            SessionNotFoundError: There never was such a session.
        """
        try:
            session = self.find(session_id)
        except SessionClosedError:
            return "already_closed"
        if session.is_orphan():
            with trio.CancelScope(shield=True):
                await session.release()
            if not session.is_orphan():
                self._forget(session)
        else:
            session.close("by request")
            with trio.move_on_after(CLOSE_SECONDS):
                await session.closed.wait()
        if session.is_orphan() or not session.closed.is_set():
            raise ReleaseFailedError(f"the worker of {session_id!r} does not die")
        return "closed"

    # Runs --------------------------------------------------------------------

    async def run(
        self, session_id: str, request: RunRequest, on_output: OnOutput | None = None
    ) -> RunResult:
        """Run code in a session; raises as `Session.run` and `find`."""
        session = self.find(session_id)

        async def work() -> RunResult:
            await session.opened.wait()
            return await session.run(request, on_output)

        return await self._admit(work)

    async def interrupt(self, session_id: str) -> bool:
        """Interrupt a session's current run; whether one was and ended."""
        return await self.find(session_id).interrupt()

    async def run_once(
        self,
        options: SessionOptions,
        request: RunRequest,
        files: Mapping[str, str],
        on_output: OnOutput | None = None,
    ) -> RunResult:
        """Run code in a worker of its own, killed afterwards.

        Raises:
            RequestError: An option, limit or file name is out of range.
            WorkerError: No worker, or it died by no act of the code.
            QueueTimeoutError: No worker became free in time.
            OverloadedError: There is too little memory.
        """
        self._refuse_short_memory()
        once = Once(
            pool=self._pool(options),
            configured=self._limits,
            limits=effective_limits(self._limits, options.limits),
            seed=options.seed,
        )
        run_deadline(self._limits, once.limits, request.deadline_seconds)
        return await self._admit(partial(once.run, request, files, on_output))

    async def _admit(self, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """Do the work as an active run; a drain that runs out of time cancels it."""
        if self._draining:
            raise DrainingError
        scope = trio.CancelScope()
        self._active.add(scope)
        try:
            with scope:
                return await work()
            raise DrainingError
        finally:
            self._runs += 1
            self._active.discard(scope)
            if not self._active:
                self._idle.set()

    def pool_of(self, session_id: str) -> str:
        """Name of a session's pool, "" when it is not open."""
        session = self._sessions.get(session_id)
        return session.pool.profile.name if session else ""

    # Shutdown ----------------------------------------------------------------

    def start_draining(self) -> None:
        """Admit nothing from now on."""
        self._draining = True

    async def drain(self, seconds: float) -> None:
        """Let active runs finish for a while; then end them as retryable."""
        self.start_draining()
        with trio.move_on_after(seconds):
            await self._wait_idle()
        for scope in self._active:
            scope.cancel()
        with trio.move_on_after(CLOSE_SECONDS):
            await self._wait_idle()

    async def _wait_idle(self) -> None:
        while self._active:
            self._idle = trio.Event()
            await self._idle.wait()

    # Observation -------------------------------------------------------------

    def statistics(self) -> SessionStatistics:
        """Sessions by state, and runs so far."""
        states = [session.state for session in self._sessions.values()]
        orphans = [s for s in self._sessions.values() if s.is_orphan()]
        return SessionStatistics(
            live=states.count(SessionState.OPEN),
            starting=states.count(SessionState.STARTING),
            closing=states.count(SessionState.CLOSING),
            orphans=len(orphans),
            runs=self._runs,
        )


def _check_duration(field: str, asked: float | None, most: float) -> None:
    if asked is not None and not 0 < asked <= most:
        raise RequestError(
            field, f"must be above 0 and at most {most:g}, got {asked:g}"
        )
