"""A small HTTP/1.1 client: one keep-alive connection, JSON, lines, deadlines.

For `demo` and `bench`, which share their cores with the daemon that they talk
to: a request costs one send and, as a rule, one receive. Nothing is retried,
since a run must never be run twice behind the caller's back.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

import h11
import msgspec
import trio

__all__ = [
    "Address",
    "AnsweredError",
    "Connection",
    "Reply",
    "TransportError",
    "open_connection",
]

RECEIVE_BYTES = 65536
BODY_BYTES = 64 * 1024 * 1024
"""Largest reply that is read."""

CLOSE_SECONDS = 1.0

Decoded = TypeVar("Decoded")


class TransportError(Exception):
    """The exchange failed below HTTP: no reply, a late one, or a broken one."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a daemon listens: `http://host:port` or `unix:/path`."""

    url: str

    async def connect(self) -> trio.abc.Stream:
        """Open the bare stream; the caller sets the deadline."""
        if self.url.startswith("unix:"):
            return await trio.open_unix_socket(self.url.removeprefix("unix:"))
        host, port = self._parts()
        return await trio.open_tcp_stream(host, port)

    @property
    def host(self) -> str:
        """The Host header."""
        if self.url.startswith("unix:"):
            return "localhost"
        return urlsplit(self.url).netloc

    def _parts(self) -> tuple[str, int]:
        split = urlsplit(self.url)
        if split.scheme != "http" or not split.hostname:
            raise TransportError(f"not an http:// or unix: address: {self.url!r}")
        return split.hostname, split.port or 80


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response.

    Attributes:
        headers: Lower-case names; of a repeated one the last value.
    """

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def json(self, kind: type[Decoded]) -> Decoded:
        """Decode the body as `kind`.

        Raises:
            TransportError: It is not JSON of that shape.
        """
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.MsgspecError as error:
            raise TransportError(f"reply is not the JSON expected: {error}") from error


class AnsweredError(TransportError):
    """Lines were asked for, and the answer was another one: a refusal, as a rule."""

    def __init__(self, what: str, reply: Reply) -> None:
        super().__init__(f"{what}: answered {reply.status}")
        self.reply = reply


@asynccontextmanager
async def open_connection(
    url: str, *, seconds: float = 10.0
) -> AsyncIterator["Connection"]:
    """Connect for the length of the block.

    Args:
        url: `http://host:port` or `unix:/path`.
        seconds: For connecting, now and whenever it has to be done again.

    Raises:
        TransportError: Nobody answered there in time.
    """
    connection = Connection(Address(url), connect_seconds=seconds)
    try:
        await connection.connect()
        yield connection
    finally:
        await connection.aclose()


class Connection:
    """One connection, used by one task at a time.

    A failed exchange closes it, and the next request connects again.
    """

    def __init__(self, address: Address, *, connect_seconds: float) -> None:
        self._address = address
        self._connect_seconds = connect_seconds
        self._stream: trio.abc.Stream | None = None
        self._state = h11.Connection(h11.CLIENT)
        self._host = address.host.encode()

    async def connect(self) -> trio.abc.Stream:
        """Open the stream unless it is open.

        Raises:
            TransportError: Nobody answered in time.
        """
        if self._stream is None:
            deadline = trio.current_time() + self._connect_seconds
            with failing_as(f"connecting to {self._address.url}", deadline):
                self._stream = await self._address.connect()
            self._state = h11.Connection(h11.CLIENT)
        return self._stream

    async def aclose(self) -> None:
        """Close the stream; bounded, and safe to cancel or repeat."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_SECONDS):
                await stream.aclose()

    async def request(
        self, method: str, path: str, value: object = None, *, seconds: float
    ) -> Reply:
        """Send `value` as JSON, or no body for None, and read the whole reply.

        Cancellation closes the connection, which cancels the work behind it.

        Args:
            method: Such as `POST`.
            path: Absolute path with its query.
            value: What msgspec can encode; bytes are sent as they are.
            seconds: From sending to the last byte of the reply.

        Raises:
            TransportError: No whole reply in time.
        """
        async with self._closed_unless_clean():
            await self.connect()
            with failing_as(f"{method} {path}", trio.current_time() + seconds):
                await self._send(method, path, value, b"application/json")
                response = await self._next_response()
                body = await self._read_body()
        return Reply(response.status_code, dict(response.headers), body)

    @asynccontextmanager
    async def lines(
        self, method: str, path: str, value: object = None, *, seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send `value` and iterate over the lines of an NDJSON reply.

        Leaving the block early closes the connection.

        Raises:
            AnsweredError: The status is not 200.
            TransportError: The reply broke off or took longer than `seconds`
                in all.
        """
        what, deadline = f"{method} {path}", trio.current_time() + seconds
        async with self._closed_unless_clean():
            await self.connect()
            with failing_as(what, deadline):
                await self._send(method, path, value, b"application/x-ndjson")
                response = await self._next_response()
                if response.status_code != HTTPStatus.OK:
                    headers, body = dict(response.headers), await self._read_body()
                    reply = Reply(response.status_code, headers, body)
                    raise AnsweredError(what, reply)
            async with aclosing(self._split_lines(what, deadline)) as lines:
                yield lines

    @asynccontextmanager
    async def _closed_unless_clean(self) -> AsyncIterator[None]:
        """Keep the connection only when both sides have finished a cycle."""
        clean = False
        try:
            yield
            clean = self._state.our_state is self._state.their_state is h11.DONE
        finally:
            if clean:
                self._state.start_next_cycle()
            else:
                await self.aclose()

    async def _send(self, method: str, path: str, value: object, accept: bytes) -> None:
        """Send the request, head and body in one piece."""
        headers = [(b"Host", self._host), (b"Accept", accept)]
        body = b""
        if value is not None:
            body = value if isinstance(value, bytes) else msgspec.json.encode(value)
            headers.append((b"Content-Type", b"application/json"))
            headers.append((b"Content-Length", b"%d" % len(body)))
        request = h11.Request(method=method, target=path, headers=headers)
        pieces = [self._state.send(request)]
        if body:
            pieces.append(self._state.send(h11.Data(data=body)))
        pieces.append(self._state.send(h11.EndOfMessage()))
        assert self._stream is not None
        await self._stream.send_all(b"".join(piece or b"" for piece in pieces))

    async def _next_event(self) -> h11.Event:
        while (event := self._state.next_event()) is h11.NEED_DATA:
            assert self._stream is not None
            data = await self._stream.receive_some(RECEIVE_BYTES)
            if not data and self._state.their_state is h11.SEND_RESPONSE:
                raise trio.BrokenResourceError("connection closed before the reply")
            self._state.receive_data(bytes(data))
        assert isinstance(event, h11.Event)  # PAUSED needs pipelining: never done
        return event

    async def _next_response(self) -> h11.Response:
        while isinstance(event := await self._next_event(), h11.InformationalResponse):
            pass
        assert isinstance(event, h11.Response)  # what else may come first is an error
        return event

    async def _read_body(self) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while isinstance(event := await self._next_event(), h11.Data):
            chunks.append(bytes(event.data))
            if (size := size + len(chunks[-1])) > BODY_BYTES:
                raise TransportError(f"reply is longer than {BODY_BYTES} bytes")
        return b"".join(chunks)

    async def _split_lines(
        self, what: str, deadline: float
    ) -> AsyncGenerator[bytes, None]:
        rest = b""
        while True:
            with failing_as(what, deadline):
                event = await self._next_event()
            if not isinstance(event, h11.Data):
                break
            *whole, rest = (rest + bytes(event.data)).split(b"\n")
            for line in whole:
                yield line
            if len(rest) > BODY_BYTES:
                raise TransportError(f"a line is longer than {BODY_BYTES} bytes")
        if rest:
            yield rest


@contextmanager
def failing_as(what: str, deadline: float) -> Iterator[None]:
    """Set a deadline, and translate whatever goes wrong inside."""
    try:
        with trio.fail_at(deadline):
            yield
    except trio.TooSlowError as error:
        raise TransportError(f"{what}: no reply in time") from error
    except (OSError, trio.BrokenResourceError, h11.ProtocolError) as error:
        raise TransportError(f"{what}: {str(error) or repr(error)}") from error
