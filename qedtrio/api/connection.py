"""One client's connection: Hypercorn's HTTP/1.1 on a Trio stream, hardened.

Theory of operation. One task reads the socket and feeds the protocol; each
request's application runs in a task beside it. Both live in one nursery,
whose cancel scope is the connection's life:

* while no request is under way its deadline is the keep-alive limit, so
  idle clients and slow headers cost no task of their own;
* end of input ends it, and with it the running application. A client that
  closes only its sending side therefore gets no answer: on a socket that
  cannot be told from one that went away;
* while a request is under way and more bytes wait behind it, the protocol
  stops parsing; `Pause` then reads on, within a bound, only to see the end;
* a send that makes no progress for `send_seconds`, and any error, end it;
* when the protocol wants to close, our side is shut down at once, and what
  the client still sends is read and thrown away for `LINGER_SECONDS`. A close
  with unread bytes would reset the connection and could destroy the answer.

Whatever goes wrong in a connection stays in it. HTTP/2 is not spoken: it is
slower here, its flow control can stall a handler without a limit, and two of
the three known one-packet crashes come with it.
"""

import logging
import math
from collections.abc import Iterator
from contextlib import suppress

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.utils import parse_socket_addr

from qedtrio.api.faults import is_hostile, split
from qedtrio.api.protocol import Applications, Environment, Http1, Pause

__all__ = ["Connection"]

RECEIVE_BYTES = 1 << 16
READ_AHEAD_BYTES = 1 << 16
"""Kept of what a client sends before its turn; beyond it, nobody reads."""

SEND_BYTES = 1 << 18
"""Sent under one deadline, so that a slow reader of much is not cut off."""

LINGER_SECONDS = 3.0

DRAIN_IDLE_SECONDS = 0.1
"""When draining, a request already on its way to an idle connection still gets
its answer, which tells the client to come back elsewhere."""

log = logging.getLogger(__name__)


class Connection:
    """Serves one client until either side has had enough."""

    def __init__(self, stream: trio.SocketStream, environment: Environment) -> None:
        self._stream = stream
        self._environment = environment
        self._life = trio.CancelScope()
        self._send_lock = trio.Lock()
        self._corked: bytearray | None = None
        self._ahead = b""
        self._is_busy = False
        self._is_closing = False
        self.is_draining = False

    async def run(self) -> None:
        """Serve; returns when the socket is closed, whatever happened."""
        try:
            async with trio.open_nursery() as nursery:
                self._life = nursery.cancel_scope
                self._rest()
                self._protocol = self._make_protocol(Applications(self, nursery))
                await self._read()
                nursery.cancel_scope.cancel()
        except BaseException as error:  # noqa: ASYNC103, BLE001  # goes on when fatal
            ours, fatal = split(error, Exception)
            if ours is not None:
                _report(ours)
            if fatal is not None:
                raise fatal from None  # noqa: ASYNC104  # it is the cancellation
        finally:
            await trio.aclose_forcefully(self._stream)

    def drain(self) -> None:
        """Close soon if nothing is under way, else after its response."""
        self.is_draining = True
        if not self._is_busy:
            self._rest()

    def _make_protocol(self, applications: Applications) -> Http1:
        """The parser and writer for this client."""
        socket = self._stream.socket
        return Http1(
            self._environment,
            applications,
            Pause(self.read_ahead),
            parse_socket_addr(socket.family, socket.getpeername()),
            parse_socket_addr(socket.family, socket.getsockname()),
            self.send,
        )

    # -- reading

    async def _read(self) -> None:
        """Feed the protocol until the client's end of input."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:  # noqa: ASYNC913  # what was read ahead comes once
                data, self._ahead = self._ahead, b""
                if not data:
                    data = bytes(await self._stream.receive_some(RECEIVE_BYTES))
                if not data:
                    return
                if not self._is_closing:
                    await self._protocol.handle(RawData(data))

    async def read_ahead(self) -> None:
        """Read while the protocol is paused, to notice that the client left."""
        while len(self._ahead) < READ_AHEAD_BYTES:
            try:
                data = await self._stream.receive_some(RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                self._life.cancel()
                return
            if not self._is_closing:
                self._ahead += data

    # -- sending

    async def send(self, event: Event) -> None:
        """Do what the protocol asks."""
        if isinstance(event, RawData):
            if self._corked is not None:
                self._corked += event.data
            elif event.data:
                await self._transmit(event.data)
        elif isinstance(event, Updated):
            if event.idle:
                await self.flush()
                self._rest()
            else:
                self._is_busy = True
                self._life.deadline = math.inf
        elif isinstance(event, Closed):
            await self.flush()
            await self._close()

    def cork(self) -> None:
        """Gather what is sent until `flush`."""
        if self._corked is None:
            self._corked = bytearray()

    async def flush(self) -> None:
        """Send what was gathered."""
        data, self._corked = self._corked, None
        if data:
            await self._transmit(data)

    async def _transmit(self, data: bytes | bytearray) -> None:
        """Send all of `data`, or end the connection.

        Not shielded: a cancelled task is one whose connection is ending, and
        half a message harms nobody there. A shield would let a client that
        reads nothing hold up the whole server's end.
        """
        try:
            self._send_lock.acquire_nowait()
        except trio.WouldBlock:
            await self._send_lock.acquire()
        try:
            for part in _parts(data):
                await self._send_part(part)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._life.cancel()
        finally:
            self._send_lock.release()

    async def _send_part(self, part: bytes | bytearray | memoryview) -> None:
        """Send within `send_seconds`, or the connection's life is over.

        Moving that deadline costs a tenth of entering a scope of its own.
        """
        usual = self._life.deadline
        limit = trio.current_time() + self._environment.http.send_seconds
        self._life.deadline = limit
        try:
            await self._stream.send_all(part)
        except trio.Cancelled:
            if trio.current_time() >= limit:
                log.warning("A client stopped reading and was cut off")
            raise
        if self._life.deadline == limit:  # nobody closed the connection meanwhile
            self._life.deadline = usual

    # -- life

    def _rest(self) -> None:
        """No request is under way: wait for one, within the limit."""
        self._is_busy = False
        limit = self._environment.http.keep_alive_seconds
        if self.is_draining or self._is_closing:
            limit = min(limit, DRAIN_IDLE_SECONDS)
        self._life.deadline = trio.current_time() + limit

    async def _close(self) -> None:
        """End our side; the client's is read out for a moment."""
        if self._is_closing:
            return
        self._is_closing = True
        self._is_busy = False
        limit = DRAIN_IDLE_SECONDS if self.is_draining else LINGER_SECONDS
        self._life.deadline = trio.current_time() + limit
        gone = (trio.BrokenResourceError, trio.ClosedResourceError)
        async with self._send_lock:  # what is being sent must be out first
            with suppress(*gone):
                await self._stream.send_eof()
        await self._protocol.handle(Closed())


def _parts(data: bytes | bytearray) -> Iterator[bytes | bytearray | memoryview]:
    """Cut `data` where each part gets a deadline of its own."""
    if len(data) <= SEND_BYTES:
        yield data
        return
    view = memoryview(data)
    for start in range(0, len(view), SEND_BYTES):
        yield view[start : start + SEND_BYTES]


def _report(error: BaseException) -> None:
    """Log why a connection ended: briefly when its client is to blame."""
    if is_hostile(error):
        log.info("A client broke the protocol and was cut off")
    else:
        log.error("A connection failed", exc_info=error)
