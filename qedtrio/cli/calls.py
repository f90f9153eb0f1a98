"""Calls of the native API that demo and bench share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

import trio

from qedtrio.cli.http import Connection, Reply

__all__ = ["Opened", "RefusedError", "ask", "open_session"]

REPLY_SECONDS = 60.0
"""For one exchange: the daemon's longest queue, and a run on top of it."""

CLOSE_SECONDS = 20.0


class RefusedError(Exception):
    """The daemon answered with something else than the result asked for."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What is read of the reply to opening a session."""

    session_id: str
    tier: str


@dataclass(frozen=True, slots=True)
class ProblemDocument:
    """What is read of a problem document."""

    code: str = "unknown"
    detail: str = ""


async def ask(
    connection: Connection,
    method: str,
    path: str,
    value: object = None,
    *,
    seconds: float = REPLY_SECONDS,
) -> Reply:
    """Make one call and expect it to succeed within `seconds`.

    Raises:
        RefusedError: It did not; the sentence says why.
        TransportError: The daemon could not be asked.
    """
    reply = await connection.request(method, path, value, seconds=seconds)
    if reply.status in {HTTPStatus.OK, HTTPStatus.CREATED}:
        return reply
    problem = reply.json(ProblemDocument)
    raise RefusedError(f"HTTP {reply.status} {problem.code}: {problem.detail}")


@asynccontextmanager
async def open_session(connection: Connection) -> AsyncIterator[Opened]:
    """Open a session in the default pool for the length of the block.

    It is closed on cancellation too, which may then take `CLOSE_SECONDS`.

    Raises:
        RefusedError: It could not be opened, or not be closed.
        TransportError: The daemon could not be asked.
    """
    opened = (await ask(connection, "POST", "/v1/sessions", {})).json(Opened)
    path = f"/v1/sessions/{opened.session_id}"
    try:
        yield opened
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True) as scope:
            await ask(connection, "DELETE", path, seconds=CLOSE_SECONDS)
    if scope.cancelled_caught:
        raise RefusedError(f"session not closed within {CLOSE_SECONDS:g} s")
