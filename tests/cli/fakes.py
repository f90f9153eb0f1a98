"""A scripted HTTP server on a real socket, for the client side of the commands."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import h11
import msgspec
import trio

from qedtrio.environment.problems import Cell, Problem
from qedtrio.results import RunError, RunResult, Verdict, VerdictStatus


@dataclass
class Asked:
    """A request as the server saw it; `connection` counts from 1."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes
    connection: int


@dataclass
class Answer:
    """What to send back: one body, or chunks of one without a length.

    Attributes:
        cut: Close the connection after the chunks, without ending the body.
    """

    status: int = 200
    body: bytes | Sequence[bytes] = b"{}"
    close: bool = False
    cut: bool = False


Handler = Callable[[Asked], Awaitable[Answer]]


def json_answer(value: object, status: int = 200) -> Answer:
    """Answer with `value` as JSON."""
    return Answer(status, msgspec.json.encode(value))


@asynccontextmanager
async def serve_tcp(handler: Handler) -> AsyncIterator[str]:
    """Serve `handler` on a free loopback port; gives the URL."""
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, Server(handler).talk, 0, host="127.0.0.1")
        listeners = await nursery.start(serve)
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


@dataclass
class Server:
    """Speaks HTTP/1.1 for a handler, keep-alive included."""

    handler: Handler
    connections: int = 0

    async def talk(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until either side ends it."""
        self.connections += 1
        number = self.connections
        state = h11.Connection(h11.SERVER)
        # A client that leaves in the middle of a reply is its test's business.
        async with stream:
            with suppress(trio.BrokenResourceError):
                await self.serve(state, stream, number)

    async def serve(
        self, state: h11.Connection, stream: trio.abc.Stream, number: int
    ) -> None:
        """Answer requests until either side ends the connection."""
        while (asked := await self.read(state, stream, number)) is not None:
            answer = await self.handler(asked)
            if not await self.reply(state, stream, answer):
                return
            state.start_next_cycle()

    async def read(
        self, state: h11.Connection, stream: trio.abc.Stream, number: int
    ) -> Asked | None:
        """Read a request; None when the client has gone."""
        head: h11.Request | None = None
        body = b""
        while True:
            event = await next_event(state, stream)
            if isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                path, method = head.target.decode(), head.method.decode()
                return Asked(method, path, dict(head.headers), body, number)
            else:
                return None

    async def reply(
        self, state: h11.Connection, stream: trio.abc.Stream, answer: Answer
    ) -> bool:
        """Send an answer; tells whether the connection lives on."""
        whole = isinstance(answer.body, bytes)
        chunks = [answer.body] if isinstance(answer.body, bytes) else answer.body
        length = [("Content-Length", str(len(answer.body)))] if whole else []
        headers = length + ([("Connection", "close")] if answer.close else [])
        head = h11.Response(status_code=answer.status, headers=headers)
        await stream.send_all(state.send(head) or b"")
        for chunk in chunks:
            await stream.send_all(state.send(h11.Data(data=chunk)) or b"")
        if answer.cut:
            return False
        await stream.send_all(state.send(h11.EndOfMessage()) or b"")
        return state.our_state is h11.DONE


async def next_event(state: h11.Connection, stream: trio.abc.Stream) -> object:
    """Receive until there is an event."""
    while (event := state.next_event()) is h11.NEED_DATA:
        state.receive_data(bytes(await stream.receive_some(65536)))
    return event


@dataclass
class ScriptedDaemon:
    """Answers like a daemon on which every bundled script goes as written.

    Attributes:
        open_sessions: Ids not yet deleted.
        most_open: How many were open at once, at most.
        verdicts: Problem id → verdict to give instead of the scripted one.
    """

    problems: Sequence[Problem]
    verdicts: dict[str, VerdictStatus] = field(default_factory=dict)
    open_sessions: set[str] = field(default_factory=set)
    most_open: int = 0
    opened: int = 0

    async def __call__(self, asked: Asked) -> Answer:
        """Answer one request."""
        await trio.lowlevel.checkpoint()
        match asked.method, asked.path.split("/")[2:]:
            case "POST", ["sessions"]:
                return self.open()
            case "DELETE", ["sessions", name]:
                self.open_sessions.remove(name)
                return json_answer({"session_id": name, "outcome": "closed"})
            case "POST", ["sessions", name, "run"]:
                assert name in self.open_sessions
                return self.run(msgspec.json.decode(asked.body))
            case "POST", ["verify"]:
                return self.verify(msgspec.json.decode(asked.body))
        return json_answer({"code": "not_found", "detail": asked.path}, 404)

    def open(self) -> Answer:
        """Open a session."""
        self.opened += 1
        name = f"s{self.opened}"
        self.open_sessions.add(name)
        self.most_open = max(self.most_open, len(self.open_sessions))
        return json_answer({"session_id": name, "tier": "C", "state": "open"}, 201)

    def run(self, body: dict[str, object]) -> Answer:
        """Answer what the cell with this code is scripted to do."""
        cell = next(c for c in self.cells() if c.code == body["code"])
        error = RunError(type="E", message="m", traceback="t")
        return json_answer(
            RunResult(
                run_id="r",
                status=cell.status,
                stdout=f"{cell.prints}\n",
                error=error if cell.status == "error" else None,
            )
        )

    def cells(self) -> list[Cell]:
        """List the cells of every script."""
        scripts = [p.script for p in self.problems if p.script is not None]
        return [cell for script in scripts for cell in script.cells]

    def verify(self, body: dict[str, object]) -> Answer:
        """Answer the scripted verdict, or the one to give instead."""
        for problem in self.problems:
            if problem.script and problem.script.response == body["prediction"]:
                assert body["gold"] == problem.answer
                status = self.verdicts.get(problem.id, problem.script.verdict)
                return json_answer(verdict_of(status, problem))
        return json_answer({"code": "invalid_request", "detail": "unknown"}, 400)


def verdict_of(status: VerdictStatus, problem: Problem) -> Verdict:
    """Make a verdict of this status."""
    return Verdict(
        status=status,
        correct=status.correct,
        reward=status.reward,
        extracted=problem.answer if status.correct else None,
        gold=problem.answer or "",
        method="fake",
        reason="scripted",
    )
