"""Hypercorn's HTTP/1.1, fitted to our connections.

What is used of Hypercorn's insides is named here and in `connection` alone;
`tests/api/test_hypercorn_contract.py` fails when an upgrade changes it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event
from hypercorn.protocol.events import EndBody
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import H11Protocol, H11WSConnection
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from qedtrio.api.codec import encode
from qedtrio.api.exchange import Exchange, Wire
from qedtrio.api.intake import RequestIds
from qedtrio.api.messages import Headers
from qedtrio.api.problem import PROBLEM_JSON, HttpError, describe
from qedtrio.config import HttpConfig

if TYPE_CHECKING:
    from hypercorn.typing import ASGIFramework, ASGIReceiveEvent, ASGISendEvent, Scope

__all__ = ["Applications", "Environment", "Http1", "Pause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What all connections of a server share."""

    app: "ASGIFramework"
    http: HttpConfig
    config: Config
    context: WorkerContext
    request_ids: RequestIds


class Pause:
    """Stands in for the event at which the protocol waits for its turn."""

    def __init__(self, read_ahead: Callable[[], Awaitable[None]]) -> None:
        self._read_ahead = read_ahead
        self._event = trio.Event()

    async def clear(self) -> None:
        """Begin to wait."""
        self._event = trio.Event()

    async def set(self) -> None:
        """The turn has come."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether the turn has come."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait for the turn, reading ahead meanwhile."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_ahead)
            await self._event.wait()
            nursery.cancel_scope.cancel()


class Applications:
    """Starts the application for each request, in the connection's nursery."""

    def __init__(self, wire: Wire, nursery: trio.Nursery) -> None:
        self._wire = wire
        self._nursery = nursery

    async def spawn_app(
        self,
        app: "ASGIFramework",
        _config: Config,
        scope: "Scope",
        send: "Callable[[ASGISendEvent | None], Awaitable[None]]",
    ) -> "Callable[[ASGIReceiveEvent], Awaitable[None]]":
        """Start the application; returns what gives it messages."""
        exchange = Exchange(self._wire, app, scope, send)
        self._nursery.start_soon(exchange.run)
        return exchange.put

    def spawn(self, func: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a task of the protocol's own."""
        self._nursery.start_soon(func, *args)


class Parser(h11.Connection):
    """Overlooks what follows a last request.

    Some clients send a stray line end after a body, others pipeline after
    `Connection: close`. Neither spoils the request that came before.
    """

    @property
    def _is_read_out(self) -> bool:
        """Whether the client's last request has arrived whole."""
        return self.their_state is h11.MUST_CLOSE

    def receive_data(self, data: bytes) -> None:
        """Take bytes, unless nothing more is due."""
        if not self._is_read_out:
            super().receive_data(data)

    def next_event(self) -> "h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]":
        """Next event of a request that counts."""
        return h11.NEED_DATA if self._is_read_out else super().next_event()


class Http1(H11Protocol):
    """Hypercorn's HTTP/1.1, which never turns into HTTP/2.

    Its own error answers are problems too, with a request id.
    """

    def __init__(
        self,
        environment: Environment,
        applications: Applications,
        pause: Pause,
        client: tuple[str, int] | None,
        server: tuple[str, int] | None,
        send: Callable[[Event], Awaitable[None]],
    ) -> None:
        super().__init__(
            environment.app,  # type: ignore[arg-type]  # only handed to spawn_app, which is ours
            environment.config,
            environment.context,
            applications,  # type: ignore[arg-type]  # likewise
            ConnectionState({}),
            False,
            client,
            server,
            send,
        )
        self.can_read = pause
        self.connection = Parser(
            h11.SERVER, max_incomplete_event_size=environment.http.header_bytes
        )
        self._request_ids = environment.request_ids

    async def _check_protocol(self, event: h11.Request) -> None:
        """Ignore offers of HTTP/2, as RFC 9110 §7.8 allows."""

    async def _create_stream(self, request: h11.Request) -> None:
        """Begin a request, unless it is the preface of another protocol."""
        if request.http_version in {b"1.0", b"1.1"}:
            await super()._create_stream(request)
        else:
            await self._send_error_response(505)
            await self.send(Closed())

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response; a refused upgrade ends the connection.

        Hypercorn forgets that: its client could hold the socket for ever.
        """
        await super().stream_send(event)
        is_websocket = isinstance(self.connection, H11WSConnection)
        if is_websocket and isinstance(event, EndBody):
            await self.send(Closed())

    async def _send_error_response(self, status_code: int) -> None:
        """Answer bytes that are no request this server understands."""
        request_id = self._request_ids.of(Headers([]))
        error = HttpError(
            HTTPStatus(status_code),
            "malformed_request",
            "the bytes are no HTTP request",
        )
        body = encode(describe(error, request_id))
        headers = [
            (b"content-type", PROBLEM_JSON.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id.encode()),
            (b"connection", b"close"),
            *self.config.response_headers("h11"),
        ]
        head = h11.Response(status_code=status_code, headers=headers)
        for part in (head, h11.Data(data=body), h11.EndOfMessage()):
            await self._send_h11_event(part)
