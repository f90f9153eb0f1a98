"""One client of a soak: what it asks, and what it makes of every answer.

An answer is as it must be, or it is explained by a fault (`FaultMetError`: the
episode is played again), or it is a finding (`UnexpectedAnswerError`).
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count

import msgspec
import trio

from qedtrio.cli.bench.soak.acts import Act, RaisedError, Ran, Truncated, find_flaw
from qedtrio.cli.bench.soak.faults import EXPLAINED, Kills
from qedtrio.cli.bench.soak.tally import Latencies, Tally
from qedtrio.cli.http import AnsweredError, Connection, Reply

__all__ = ["FaultMetError", "OpenSession", "Player", "UnexpectedAnswerError"]

REPLY_SECONDS = 90.0
"""Above every limit of the daemon on one request: it must answer first."""

CLOSE_SECONDS = 30.0

SERIAL = count(1)


class UnexpectedAnswerError(Exception):
    """An answer that neither the request nor a fault explains."""


class FaultMetError(Exception):
    """An answer that a fault explains; its text names the fault."""


class Problem(msgspec.Struct, frozen=True):
    """What is read of a problem document."""

    code: str = "unknown"
    detail: str = ""


class Event(msgspec.Struct, frozen=True):
    """What is read of a line of a streamed run: output, a result or a problem."""

    event: str
    text: str = ""
    status: str | int = ""
    state: str = ""
    stdout: str = ""
    error: RaisedError | None = None
    exit_code: int | None = None
    signal: int | None = None
    truncated: Truncated = Truncated()
    code: str = ""
    detail: str = ""

    def ran(self) -> Ran:
        """Read it as a result."""
        return Ran(
            status=str(self.status),
            state=self.state,
            stdout=self.stdout,
            error=self.error,
            exit_code=self.exit_code,
            signal=self.signal,
            truncated=self.truncated,
        )


@dataclass(slots=True)
class OpenSession:
    """A session and what its interpreter must remember.

    Attributes:
        counted: Counted runs since it had a fresh interpreter.
        has_unseen_run: Whether the client left a run, so that nobody was told
            how it ended.
    """

    session_id: str
    counted: int = 0
    has_unseen_run: bool = False

    @property
    def path(self) -> str:
        """Of its resource."""
        return f"/v1/sessions/{self.session_id}"


@dataclass(slots=True)
class Player:
    """Asks one daemon over two connections.

    Attributes:
        main: For what takes its time.
        side: For what must reach the daemon meanwhile.
    """

    main: Connection
    side: Connection
    tally: Tally
    kills: Kills
    latencies: Latencies = field(default_factory=Latencies)

    # Calls -------------------------------------------------------------------

    async def ask(
        self, method: str, path: str, value: object = None, *, aside: bool = False
    ) -> Reply:
        """Make a call that must succeed.

        Raises:
            FaultMetError: It did not, for a reason that the faults explain.
            UnexpectedAnswerError: It did not.
            TransportError: There was no whole answer in time.
        """
        connection = self.side if aside else self.main
        reply = await connection.request(method, path, value, seconds=REPLY_SECONDS)
        if reply.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            problem = reply.json(Problem)
            raise explain(f"{method} {path}", problem.code, problem.detail)
        return reply

    async def ask_refused(
        self, method: str, path: str, value: object, code: str
    ) -> None:
        """Make a call that must be refused with `code`."""
        reply = await self.main.request(method, path, value, seconds=REPLY_SECONDS)
        found = reply.json(Problem)
        if found.code != code:
            raise UnexpectedAnswerError(
                f"{method} {path}: HTTP {reply.status} {found.code} instead of {code}"
            )

    @asynccontextmanager
    async def open_session(self, **options: object) -> AsyncIterator[OpenSession]:
        """Open a session for the length of the block; its end is checked.

        After a failure it is closed as well, and what goes wrong then is not
        told, since the failure is.
        """
        session = OpenSession(f"soak-{os.getpid()}-{next(SERIAL)}")
        body = {"session_id": session.session_id, **options}
        await self.ask("POST", "/v1/sessions", body)
        self.tally.sessions += 1
        try:
            yield session
        except BaseException:
            with trio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
                await self.ask("DELETE", session.path, aside=True)
            raise
        await self.ask("DELETE", session.path)

    # Runs --------------------------------------------------------------------

    async def run(self, act: Act, session: OpenSession | None = None) -> None:
        """Run `act` in a session, or without one, and check its result."""
        path = f"{session.path}/run" if session else "/v1/run"
        began = trio.current_time()
        reply = await self.ask("POST", path, act.body())
        self.check(act, reply.json(Ran), session, began)

    async def watch(
        self,
        act: Act,
        session: OpenSession,
        on_begun: Callable[[], Awaitable[None]],
    ) -> None:
        """Run `act` as a stream, call `on_begun` at its first output, and check.

        Raises:
            FaultMetError: As `run`.
            UnexpectedAnswerError: As `run`; a problem is one, too.
            TransportError: The stream broke off.
        """
        began = trio.current_time()
        end: Event | None = None
        try:
            async with self.main.lines(
                "POST", f"{session.path}/run", act.body(), seconds=REPLY_SECONDS
            ) as lines:
                is_begun = False
                async for line in lines:
                    event = msgspec.json.decode(line, type=Event)
                    if event.event in {"result", "problem"}:
                        end = event
                    elif not is_begun:
                        is_begun = True
                        await on_begun()
        except AnsweredError as error:
            problem = error.reply.json(Problem)
            raise explain(act.name, problem.code, problem.detail) from None
        if end is None:
            raise UnexpectedAnswerError(f"streamed {act.name}: no result at its end")
        if end.event == "problem":
            raise explain(f"streamed {act.name}", end.code, end.detail)
        self.check(act, end.ran(), session, began)

    def check(
        self, act: Act, ran: Ran, session: OpenSession | None, began: float
    ) -> None:
        """Count the result of `act` if it is as it must be."""
        flaw = find_flaw(act, ran, session.counted if session else 0)
        if flaw and self.is_explained(act, ran, session, began):
            raise FaultMetError("worker_killed")
        if flaw:
            raise UnexpectedAnswerError(
                f"run {act.name}: {flaw}; stderr {ran.stderr[:200]!r}"
            )
        self.tally.runs[ran.status] += 1
        self.latencies.add(act.name, trio.current_time() - began)
        if session:
            session.counted = 0 if act.lost else session.counted + act.counts

    def is_explained(
        self, act: Act, ran: Ran, session: OpenSession | None, began: float
    ) -> bool:
        """Whether a killed worker explains a result that is not as it must be."""
        if not self.kills.explain(session.session_id if session else None, began):
            return False
        if (ran.status, ran.signal) == ("signalled", signal.SIGKILL):
            return True
        if (ran.status, ran.state) == ("timed_out", "lost"):
            return act.status == ran.status  # killed while it was being interrupted
        # A kill in a run that nobody watched is first seen as lost state.
        unseen = session is not None and session.has_unseen_run
        return unseen and find_flaw(act, ran, 0) == ""


def explain(what: str, code: str, detail: str) -> Exception:
    """Make the exception for a problem, by whether faults explain its code."""
    if code in EXPLAINED:
        return FaultMetError(code)
    return UnexpectedAnswerError(f"{what}: {code}: {detail}")
