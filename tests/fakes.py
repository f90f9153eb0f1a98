"""Stand-ins that keep the Protocols of `qedtrio.api.services`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import trio

from qedtrio.api.metrics import Metrics
from qedtrio.api.services import Services
from qedtrio.api.status import (
    DaemonStatus,
    Readiness,
    VerifyStatus,
)
from qedtrio.config import Config
from qedtrio.errors import (
    SessionClosedError,
    SessionConflictError,
    SessionNotFoundError,
)
from qedtrio.results import RunResult, RunStatus, Verdict, VerdictStatus
from qedtrio.sessions.model import (
    OnOutput,
    RunRequest,
    SessionInfo,
    SessionOptions,
    SessionState,
)
from qedtrio.sessions.registry import SessionStatistics
from qedtrio.verify.model import VerifyItem
from qedtrio.workers.pool import PoolState, PoolStatistics, WorkerStatistics

RunCode = Callable[[RunRequest, OnOutput | None], Awaitable[RunResult]]


async def echo_code(request: RunRequest, on_output: OnOutput | None) -> RunResult:
    """A run whose output is its own code."""
    await trio.lowlevel.checkpoint()
    if on_output is not None:
        on_output("stdout", request.code)
    return RunResult(
        run_id=request.run_id or "fresh",
        status=RunStatus.OK,
        stdout=request.code,
        result=repr(request.stdin) if request.stdin else None,
    )


class FakeSessions:
    """Sessions that are records; `run_code` decides what runs do."""

    def __init__(self, run_code: RunCode = echo_code) -> None:
        self.run_code = run_code
        self.infos: dict[str, tuple[SessionInfo, SessionOptions]] = {}
        self.files: dict[str, str] = {}

    async def create(
        self, session_id: str | None, options: SessionOptions
    ) -> tuple[SessionInfo, bool]:
        """Open, or find the same one."""
        await trio.lowlevel.checkpoint()
        name = session_id or f"session-{len(self.infos)}"
        if name in self.infos:
            info, first = self.infos[name]
            if first != options:
                raise SessionConflictError(name, "is in use with other options")
            return info, False
        info = SessionInfo(
            session_id=name,
            state=SessionState.OPEN,
            pool=options.pool or "science",
            tier="A",
            created_at=1.0,
            expires_at=2.0,
            limits=options.limits or {},
        )
        self.infos[name] = info, options
        return info, True

    def get(self, session_id: str) -> SessionInfo:
        """The record."""
        if session_id not in self.infos:
            raise SessionNotFoundError(session_id)
        info, _ = self.infos[session_id]
        if info.state is SessionState.CLOSED:
            raise SessionClosedError(session_id, "by its client")
        return info

    def list(self) -> list[SessionInfo]:
        """The records of open sessions."""
        found = [info for info, _ in self.infos.values()]
        return [info for info in found if info.state is not SessionState.CLOSED]

    async def close(self, session_id: str) -> Literal["closed", "already_closed"]:
        """Mark as closed."""
        await trio.lowlevel.checkpoint()
        if session_id not in self.infos:
            raise SessionNotFoundError(session_id)
        info, options = self.infos[session_id]
        if info.state is SessionState.CLOSED:
            return "already_closed"
        self.infos[session_id] = replace(info, state=SessionState.CLOSED), options
        return "closed"

    async def run(
        self,
        session_id: str,
        request: RunRequest,
        on_output: OnOutput | None = None,
    ) -> RunResult:
        """Run what the test said."""
        self.get(session_id)
        return await self.run_code(request, on_output)

    async def interrupt(self, session_id: str) -> bool:
        """Nothing ever runs for long here."""
        await trio.lowlevel.checkpoint()
        self.get(session_id)
        return False

    async def run_once(
        self,
        options: SessionOptions,
        request: RunRequest,
        files: Mapping[str, str],
        on_output: OnOutput | None = None,
    ) -> RunResult:
        """Run what the test said, and keep the files."""
        self.files = dict(files)
        return await self.run_code(request, on_output)


@dataclass
class FakeVerifier:
    """Calls a prediction correct when it ends with the reference."""

    judge: Callable[[VerifyItem], Awaitable[None]] | None = None

    async def verify(self, item: VerifyItem) -> Verdict:
        """Judge one."""
        await trio.lowlevel.checkpoint()
        if self.judge is not None:
            await self.judge(item)
        good = item.prediction.endswith(item.gold)
        status = VerdictStatus.CORRECT if good else VerdictStatus.WRONG
        return Verdict(
            status=status,
            correct=status.correct,
            reward=status.reward,
            extracted=item.prediction,
            gold=item.gold,
            method="fake",
            reason="as the fake sees it",
        )

    @asynccontextmanager
    async def verify_many(
        self, items: Sequence[VerifyItem]
    ) -> AsyncIterator[AsyncIterator[tuple[int, Verdict]]]:
        """Judge all at once; verdicts come as they are made."""
        send, receive = trio.open_memory_channel[tuple[int, Verdict]](len(items))

        async def judge(index: int, item: VerifyItem) -> None:
            await send.send((index, await self.verify(item)))

        async def judge_all() -> None:
            # Closed without a checkpoint: there, the reader's end could cancel
            # this task and replace an error that is on its way out.
            with send:
                async with trio.open_nursery() as each:
                    for index, item in enumerate(items):
                        each.start_soon(judge, index, item)

        async with trio.open_nursery() as nursery, receive:
            nursery.start_soon(judge_all)
            yield receive
            nursery.cancel_scope.cancel()


def fake_status() -> DaemonStatus:
    """A daemon with one session."""
    worker = WorkerStatistics(
        pid=1, state="busy", session_id="a", age_seconds=1.5, memory_bytes=4096
    )
    pool = PoolStatistics(
        state=PoolState.RUNNING,
        engine="fork",
        ready=2,
        busy=1,
        dying=0,
        starting=0,
        restarts=3,
        queue=4,
        failure="",
        workers=(worker,),
    )
    return DaemonStatus(
        version="0",
        tier="A",
        uptime_seconds=5.0,
        draining=False,
        sessions=SessionStatistics(live=1, starting=0, closing=0, orphans=0, runs=5),
        verify=VerifyStatus(queue=0, cache_hits=6, cache_misses=7),
        pools={"science": pool},
    )


@dataclass
class FakeDaemon:
    """Holds what `Services` points at, open to change by a test."""

    config: Config = field(default_factory=Config)
    sessions: FakeSessions = field(default_factory=FakeSessions)
    verifier: FakeVerifier = field(default_factory=FakeVerifier)
    ready: Readiness = field(
        default_factory=lambda: Readiness(ready=True, reasons=(), tier="A")
    )
    is_draining: bool = False

    async def readiness(self) -> Readiness:
        """As the test said."""
        await trio.lowlevel.checkpoint()
        return self.ready

    def services(self) -> Services:
        """What the handlers see."""
        return Services(
            config=self.config,
            sessions=self.sessions,
            verifier=self.verifier,
            readiness=self.readiness,
            status=fake_status,
            metrics=Metrics(fake_status),
            draining=lambda: self.is_draining,
            bench_echo=True,
        )
