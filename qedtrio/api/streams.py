"""Newline-delimited JSON: a run's output as it happens, verdicts as they come.

The domain hands output over synchronously and must never wait for a slow
client, so what is not yet sent is bounded: beyond the bound, pieces are left
out of the stream and their number of characters is told instead. The result
at the end holds the output in full, within the session's own limits.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import trio

from qedtrio.api.codec import encode, encode_event
from qedtrio.api.problem import describe
from qedtrio.results import RunResult, Verdict
from qedtrio.sessions.model import OnOutput, OutputStream

__all__ = ["open_run_lines", "open_verdict_lines"]

PENDING_CHARS = 1 << 18
"""Output that may wait for the client to read."""


PENDING_VERDICTS = 64
"""Verdicts that may wait for the client to read; then judging waits, too."""

Verdicts = AbstractAsyncContextManager[AsyncIterator[tuple[int, Verdict]]]


class OutputEvent(msgspec.Struct, frozen=True):
    """A piece of output; its stream is the event's name."""

    text: str


class RunLines:
    """One run as lines: output, then the result or a problem."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._pending: deque[tuple[OutputStream, str]] = deque()
        self._pending_chars = 0
        self._omitted: dict[OutputStream, int] = {}
        self._outcome: RunResult | Exception | None = None
        self._news = trio.Event()
        self._is_begun = False
        self._is_over = False

    def put(self, stream: OutputStream, text: str) -> None:
        """Take a piece of output; never blocks."""
        if self._pending_chars + len(text) > PENDING_CHARS:
            self._omitted[stream] = self._omitted.get(stream, 0) + len(text)
        else:
            self._pending.append((stream, text))
            self._pending_chars += len(text)
        self._news.set()

    async def follow(self, run: Callable[[OnOutput], Awaitable[RunResult]]) -> None:
        """Run and keep the outcome for the reader."""
        try:
            self._outcome = await run(self.put)
        except Exception as error:  # noqa: BLE001  # the reader raises or tells it
            self._outcome = error
        self._news.set()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Next line; before any line, raises what the run raised."""
        while (line := self._next_nowait()) is None:
            self._news = trio.Event()
            await self._news.wait()
        self._is_begun = True
        return line

    def _next_nowait(self) -> bytes | None:
        """Next line, None when there is none yet."""
        if self._pending:
            stream, text = self._pending.popleft()
            self._pending_chars -= len(text)
            return encode_event(stream, OutputEvent(text))
        if self._omitted:
            stream, chars = self._omitted.popitem()
            note = f"\n[... {chars} characters not streamed ...]\n"
            return encode_event(stream, OutputEvent(note))
        if self._is_over:
            raise StopAsyncIteration
        if self._outcome is None:
            return None
        self._is_over = True
        if isinstance(self._outcome, RunResult):
            return encode_event("result", self._outcome)
        if not self._is_begun:
            raise self._outcome
        return encode_event("problem", describe(self._outcome, self._request_id))


@asynccontextmanager
async def open_run_lines(
    run: Callable[[OnOutput], Awaitable[RunResult]], request_id: str
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Run in the background for the length of the block; leaving cancels it."""
    lines = RunLines(request_id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.follow, run)
        try:
            yield lines
        finally:
            nursery.cancel_scope.cancel()


class VerdictLines:
    """A batch's verdicts as lines; a failure becomes the last one."""

    def __init__(self, count: int, request_id: str) -> None:
        self._missing = count
        self._request_id = request_id
        # Waiting for a slow client is fine here: it holds up its own batch.
        self._send, self._receive = trio.open_memory_channel[bytes | Exception](
            PENDING_VERDICTS
        )
        self._is_begun = False

    async def follow(self, verdicts: Verdicts) -> None:
        """Judge, and keep what went wrong for the reader."""
        async with self._send:
            try:
                await self._hand_over(verdicts)
            except Exception as error:  # noqa: BLE001  # the reader raises or tells it
                await self._send.send(error)  # noqa: ASYNC102  # bounded by the reader

    async def _hand_over(self, verdicts: Verdicts) -> None:
        """Give each verdict to the reader as a line."""
        async with verdicts as finished:
            async for index, verdict in finished:
                line = b'{"index":%d,%s\n' % (index, encode(verdict)[1:])
                await self._send.send(line)
                self._missing -= 1
        if self._missing:  # never lose a verdict silently
            raise RuntimeError(f"{self._missing} verdicts are missing")

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Next verdict; before any, raises what the verifier raised."""
        try:
            line = await self._receive.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(line, Exception):
            if not self._is_begun:
                raise line
            return encode_event("problem", describe(line, self._request_id))
        self._is_begun = True
        return line


@asynccontextmanager
async def open_verdict_lines(
    verdicts: Verdicts, count: int, request_id: str
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Judge `count` items for the length of the block; leaving cancels it."""
    lines = VerdictLines(count, request_id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.follow, verdicts)
        try:
            yield lines
        finally:
            nursery.cancel_scope.cancel()
