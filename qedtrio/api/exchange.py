"""One request and its response, between the protocol and the application.

Theory of operation. The protocol puts what it parsed into a short queue from
which the application receives; a full queue stops the reading of the socket.
A client that goes away ends its connection, which cancels the application's
task, so no application has to listen for it and none is told. (An application
that was told could cancel itself just while the server ends the response, and
leave the connection neither closed nor reused.) Once the final part of the
response is on its way, what still arrives is dropped. The response's head
waits for the first part of its body, and both leave in one packet.
"""

import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

import trio

from qedtrio.api.faults import is_hostile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hypercorn.typing import (
        ASGIFramework,
        ASGIReceiveEvent,
        ASGISendEvent,
        HTTPResponseStartEvent,
        Scope,
    )

    Deliver = Callable[[ASGISendEvent | None], Awaitable[None]]

__all__ = ["Exchange", "Wire"]

MAX_QUEUED = 8
"""Body parts, of at most 64 KiB each, that may wait for the application."""

log = logging.getLogger(__name__)


class Wire(Protocol):
    """What an exchange needs of its connection."""

    @property
    def is_draining(self) -> bool:
        """Whether the connection should end after this response."""

    def cork(self) -> None:
        """Gather what is sent until `flush`."""

    async def flush(self) -> None:
        """Send what was gathered."""


class Exchange:
    """Runs the application for one request.

    Args:
        wire: The connection.
        app: Called once.
        scope: Of the request.
        deliver: Takes the application's messages to the protocol; None says
            that it has ended.
    """

    def __init__(
        self, wire: Wire, app: "ASGIFramework", scope: "Scope", deliver: "Deliver"
    ) -> None:
        self._wire = wire
        self._app = app
        self._scope = scope
        self._deliver = deliver
        self._queue: deque[ASGIReceiveEvent] = deque()
        self._arrived: trio.Event | None = None
        self._room: trio.Event | None = None
        self._head: HTTPResponseStartEvent | None = None
        self._is_over = False

    async def run(self) -> None:
        """Run the application to its end; its failures end here."""
        try:
            await self._app(self._scope, self.receive, self.send)
        except Exception as error:
            # An answer to a WebSocket client that spoke too early, and was
            # refused for it, cannot be sent. Elsewhere such an error is ours.
            if self._scope["type"] == "websocket" and is_hostile(error):
                log.info("A WebSocket client broke the protocol")
            else:
                log.exception("The application failed")
        finally:
            self._end()
            await self._deliver(None)  # noqa: ASYNC102  # when cancelled from outside, the connection is closing

    async def put(self, message: "ASGIReceiveEvent") -> None:
        """Take a message from the protocol; waits while the queue is full."""
        if message["type"] == "http.disconnect":
            return
        is_last = message["type"] == "websocket.disconnect"
        while len(self._queue) >= MAX_QUEUED and not (self._is_over or is_last):
            self._room = trio.Event()
            await self._room.wait()
        if self._is_over:
            return
        self._queue.append(message)
        if self._arrived is not None:
            self._arrived.set()

    async def receive(self) -> "ASGIReceiveEvent":
        """Next message for the application."""
        while not self._queue:
            self._arrived = trio.Event()
            await self._arrived.wait()
        message = self._queue.popleft()
        if self._room is not None:
            self._room.set()
        return message

    async def send(self, message: "ASGISendEvent") -> None:
        """Take a message from the application."""
        if message["type"] == "http.response.start":
            self._head = message
            if self._wire.is_draining:
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            return
        if message["type"] == "http.response.body" and not message["more_body"]:
            self._end()
        if self._head is None:
            await self._deliver(message)
            return
        head, self._head = self._head, None
        self._wire.cork()
        try:
            await self._deliver(head)
            await self._deliver(message)
        finally:
            await self._wire.flush()  # noqa: ASYNC102  # cancelled only with the connection

    def _end(self) -> None:
        """Take nothing more: the response is decided."""
        self._is_over = True
        self._queue.clear()
        if self._room is not None:
            self._room.set()
