"""The scenarios: what one client prepares, and what it repeats.

Every answer is checked. A scenario that only timed replies would call a
daemon fast that refuses everything.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import count

import msgspec

from qedtrio.cli.calls import RefusedError, ask, open_session
from qedtrio.cli.http import Connection, Reply

__all__ = ["ECHO", "SCENARIOS", "Once", "Scenario"]

BATCH_ITEMS = 32

RUN = msgspec.json.encode({"code": "print(1+1)"})
ECHO_BODY = msgspec.json.encode({"text": "print(1+1)"})
SCIENCE_RUN = msgspec.json.encode(
    {
        "code": "import numpy, sympy\nprint(int(numpy.arange(4).sum()) + sympy.Integer(1))"
    }
)

Once = Callable[[], Awaitable[None]]
Prepare = Callable[[Connection], AbstractAsyncContextManager[Once]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing to repeat.

    Attributes:
        floor: Name of what bounds it from below, if anything.
        prepare: Sets one client up for the length of a block and gives what
            it repeats; preparation and clean-up are not measured.
    """

    name: str
    prepare: Prepare
    floor: str | None = None
    items_per_request: int = 1


@dataclass(frozen=True, slots=True)
class Ran:
    """What is checked of a RunResult."""

    status: str
    stdout: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What is checked of a Verdict."""

    status: str


@dataclass(frozen=True, slots=True)
class JudgedMany:
    """What is checked of a batch's reply."""

    verdicts: list[Judged]


def check_run(reply: Reply, printed: str) -> None:
    """Raise `RefusedError` unless the run was ok and printed this."""
    ran = reply.json(Ran)
    if (ran.status, ran.stdout) != ("ok", printed):
        raise RefusedError(f"run ended as {ran.status}")


def check_verdicts(verdicts: list[Judged], number: int) -> None:
    """Raise `RefusedError` unless there are `number` correct ones."""
    if len(verdicts) != number:
        raise RefusedError("batch has another number of verdicts")
    for verdict in verdicts:
        if verdict.status != "correct":
            raise RefusedError(f"verdict is {verdict.status}")


@asynccontextmanager
async def prepare_echo(connection: Connection) -> AsyncIterator[Once]:
    """The same exchange as a warm run, through the same server, doing nothing."""

    async def once() -> None:
        await ask(connection, "POST", "/bench/echo", ECHO_BODY)

    yield once


@asynccontextmanager
async def prepare_warm_run(connection: Connection) -> AsyncIterator[Once]:
    """Run a line in an open session."""
    async with open_session(connection) as opened:
        path = f"/v1/sessions/{opened.session_id}/run"

        async def once() -> None:
            check_run(await ask(connection, "POST", path, RUN), "2\n")

        yield once


@asynccontextmanager
async def prepare_open_run_close(connection: Connection) -> AsyncIterator[Once]:
    """Open a session, run a line, close it: three requests."""

    async def once() -> None:
        async with open_session(connection) as opened:
            path = f"/v1/sessions/{opened.session_id}/run"
            check_run(await ask(connection, "POST", path, RUN), "2\n")

    yield once


@asynccontextmanager
async def prepare_stateless_science(connection: Connection) -> AsyncIterator[Once]:
    """Run code that imports numpy and sympy, in a worker of its own."""

    async def once() -> None:
        check_run(await ask(connection, "POST", "/v1/run", SCIENCE_RUN), "7\n")

    yield once


@asynccontextmanager
async def prepare_verify_single(connection: Connection) -> AsyncIterator[Once]:
    """Verify one answer."""

    async def once() -> None:
        reply = await ask(connection, "POST", "/v1/verify", fresh_item())
        check_verdicts([reply.json(Judged)], 1)

    yield once


@asynccontextmanager
async def prepare_verify_batch(connection: Connection) -> AsyncIterator[Once]:
    """Verify `BATCH_ITEMS` answers in one request."""

    async def once() -> None:
        body = {"items": [fresh_item() for _ in range(BATCH_ITEMS)]}
        reply = await ask(connection, "POST", "/v1/verify", body)
        check_verdicts(reply.json(JudgedMany).verdicts, BATCH_ITEMS)

    yield once


SERIAL = count(1)
"""Shared by all clients of the process, so that no item is ever sent twice."""


def fresh_item() -> dict[str, str]:
    """Make a right answer, in four shapes by turns; no cache has seen it before."""
    n = next(SERIAL)
    gold, answer = (
        (f"{n}", f"{n}"),
        (rf"\frac{{{n}}}{{{n + 1}}}", rf"\frac{{{3 * n}}}{{{3 * n + 3}}}"),
        (rf"{n}\sqrt{{2}}", rf"\sqrt{{{2 * n * n}}}"),
        (f"(x+{n})^2", f"x^2+{2 * n}x+{n * n}"),
    )[n % 4]
    return {"gold": gold, "prediction": rf"The answer is \(\boxed{{{answer}}}\)."}


ECHO = Scenario(name="echo", prepare=prepare_echo)

SCENARIOS = (
    Scenario(name="warm_run", prepare=prepare_warm_run, floor="echo"),
    Scenario(name="open_run_close", prepare=prepare_open_run_close, floor="fork"),
    Scenario(name="stateless_science", prepare=prepare_stateless_science, floor="fork"),
    Scenario(name="verify_single", prepare=prepare_verify_single, floor="echo"),
    Scenario(
        name="verify_batch",
        prepare=prepare_verify_batch,
        floor="echo",
        items_per_request=BATCH_ITEMS,
    ),
)
