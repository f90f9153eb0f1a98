"""One client's connection: reuse, end, cancellation, stalled readers."""

import pytest
import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope
from trio.testing import wait_all_tasks_blocked
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, TextMessage
from wsproto.events import Request as Handshake

from qedtrio.api.app import build_app
from qedtrio.api.front import Front
from qedtrio.api.messages import Reply, Request
from qedtrio.api.routing import Route, RouteTable
from qedtrio.api.services import Services
from qedtrio.config import Config, HttpConfig
from tests.api.harness import (
    get,
    open_server,
    post,
    read_response,
    read_to_end,
)
from tests.fakes import FakeDaemon


class Patient:
    """A handler that waits until it is told, or cancelled."""

    def __init__(self) -> None:
        self.begun = trio.Event()
        self.proceed = trio.Event()
        self.cancelled = trio.Event()

    async def handle(self, _services: Services, _request: Request) -> Reply:
        """Wait."""
        self.begun.set()
        try:
            await self.proceed.wait()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        return Reply.of({"waited": True})

    def front(self, *, is_hot: bool) -> Front:
        """Served below Quart or inside it."""
        services = FakeDaemon().services()
        table = RouteTable(
            [
                Route(
                    method=method,
                    path="/wait",
                    handler=self.handle,
                    summary="Wait.",
                    is_hot=is_hot,
                )
                for method in ("GET", "POST")
            ]
        )
        return Front(table, services, build_app(table, services))


BOTH = pytest.mark.parametrize("is_hot", [True, False], ids=["hot", "quart"])
CLOSE = "connection: close"


@BOTH
@pytest.mark.parametrize("extra", [b"", b"\r\n", get("/wait"), b"\x00garbage"])
async def test_client_that_leaves_cancels_its_handler(
    is_hot: bool,
    extra: bytes,
) -> None:
    """At once, also with bytes waiting behind the request."""
    patient = Patient()
    async with open_server(app=patient.front(is_hot=is_hot)) as served:
        stream = await served.connect()
        await stream.send_all(post("/wait", {}) + extra)
        await patient.begun.wait()
        await stream.aclose()
        with trio.fail_after(1):
            await patient.cancelled.wait()
            await served.server.wait_connections(0)


@BOTH
async def test_closing_the_sending_side_counts_as_leaving(
    is_hot: bool,
) -> None:
    """Documented: such a client gets no answer, and the handler no time."""
    patient = Patient()
    async with (
        open_server(app=patient.front(is_hot=is_hot)) as served,
        await served.connect() as stream,
    ):
        await stream.send_all(get("/wait"))
        await patient.begun.wait()
        await stream.send_eof()
        await patient.cancelled.wait()
        assert await read_to_end(stream) == b""


@BOTH
async def test_pipelined_requests_are_answered_in_order(
    is_hot: bool,
) -> None:
    """The second waits for the first, and both are answered."""
    patient = Patient()
    async with (
        open_server(app=patient.front(is_hot=is_hot)) as served,
        await served.connect() as stream,
    ):
        await stream.send_all(get("/wait") + get("/nothing") + get("/wait", CLOSE))
        await patient.begun.wait()
        patient.proceed.set()
        replies = (await read_to_end(stream)).split(b"HTTP/1.1 ")[1:]

    assert [reply[:3] for reply in replies] == [b"200", b"404", b"200"]


@pytest.mark.parametrize("path", ["/livez", "/docs"])
async def test_connection_close_is_honoured(path: str) -> None:
    """The client sees the end right after the answer."""
    async with open_server() as served:
        with trio.fail_after(1):
            reply = await served.ask(get(path, CLOSE))

    assert reply.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in reply.lower()


async def test_connections_are_reused() -> None:
    """Hot and Quart routes follow each other on one connection."""
    async with open_server() as served, await served.connect() as stream:
        for path in ("/livez", "/openapi.json", "/livez", "/v1/status", "/livez"):
            await stream.send_all(get(path))
            status, _ = await read_response(stream)
            assert status == 200


@pytest.mark.parametrize("path", ["", "/livez", "/v1/status"])
async def test_idle_connections_are_closed(path: str) -> None:
    """After `keep_alive_seconds`, whether or not they were ever used."""
    http = HttpConfig(keep_alive_seconds=0.2)
    daemon = FakeDaemon(config=Config(http=http))
    async with open_server(daemon) as served, await served.connect() as stream:
        if path:
            await stream.send_all(get(path))
            await read_response(stream)
        with trio.fail_after(2):
            assert await read_to_end(stream) == b""


async def test_busy_connections_outlive_the_idle_limit() -> None:
    """Waiting for an answer is not idling."""
    http = HttpConfig(keep_alive_seconds=0.1)
    patient = Patient()
    app = patient.front(is_hot=True)
    async with (
        open_server(app=app, http=http) as served,
        await served.connect() as stream,
    ):
        await stream.send_all(get("/wait", CLOSE))
        await patient.begun.wait()
        with trio.move_on_after(0.3):
            await patient.cancelled.wait()
        patient.proceed.set()
        assert (await read_to_end(stream)).startswith(b"HTTP/1.1 200 ")


async def endless(
    scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
) -> None:
    """Sends for ever."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send(
            {"type": "http.response.body", "body": b"x" * 65536, "more_body": True}
        )


async def test_stalled_reader_loses_its_connection() -> None:
    """After `send_seconds` without progress; others do not notice."""
    http = HttpConfig(send_seconds=0.2)
    async with (
        open_server(app=endless, http=http) as served,
        await served.connect() as stream,
    ):
        await stream.send_all(get("/"))
        await served.server.wait_connections(1)
        with trio.fail_after(5):
            await served.server.wait_connections(0)
        received = await read_to_end(stream)

    assert received.startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
async def test_slow_reader_of_much_is_served() -> None:
    """Progress within `send_seconds` is enough, however long it all takes."""
    http = HttpConfig(send_seconds=0.4)
    size = 16_000_000

    async def big(
        scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        await receive()
        headers = [(b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = b"x" * size
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async with (
        open_server(app=big, http=http) as served,
        await served.connect() as stream,
    ):
        await stream.send_all(get("/"))
        received = 0
        while received < size:
            goal = min(size, received + 1_000_000)
            while received < goal:
                received += len(await stream.receive_some())
            with trio.move_on_after(0.1):
                await served.ended.wait()  # never: this is the slowness


async def test_failing_application_costs_its_own_connection() -> None:
    """500 where nothing was sent yet, a cut where it was."""

    async def failing(
        scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        assert scope["type"] == "http"
        await receive()
        if scope["path"] == "/late":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise RuntimeError("boom")

    async with open_server(app=failing) as served:
        early = await served.ask(get("/early"))
        late = await served.ask(get("/late"))

    assert early.startswith(b"HTTP/1.1 500 ")
    assert late.startswith(b"HTTP/1.1 200 ")
    assert not late.endswith(b"0\r\n\r\n")


async def test_unread_body_does_not_hold_the_connection() -> None:
    """An application that answers without reading lets the client go."""

    async def deaf(
        scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        await wait_all_tasks_blocked()  # until nothing more fits into the queue
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok", "more_body": False})

    async with open_server(app=deaf) as served:
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5000000\r\n\r\n"
        with trio.fail_after(2):
            reply = await served.ask(head, b"a" * 5_000_000)
        await served.server.wait_connections(0)

    assert reply.endswith(b"ok")


async def test_websockets_are_carried() -> None:
    """Messages go both ways, and the client's leaving ends the application."""
    left = trio.Event()

    async def echo(
        scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        assert scope["type"] == "websocket"
        await receive()
        await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
        try:
            while (message := await receive())["type"] == "websocket.receive":
                await send(
                    {"type": "websocket.send", "bytes": None, "text": message["text"]}
                )
        finally:
            left.set()

    client = WSConnection(ConnectionType.CLIENT)
    async with (
        open_server(app=echo) as served,
        await served.connect() as stream,
    ):
        await stream.send_all(client.send(Handshake(host="x", target="/")))
        client.receive_data(await stream.receive_some())
        assert isinstance(next(client.events()), AcceptConnection)
        for text in ("one", "two"):
            await stream.send_all(client.send(TextMessage(data=text)))
            client.receive_data(await stream.receive_some())
            (event,) = client.events()
            assert isinstance(event, TextMessage)
            assert event.data == text
        await stream.aclose()
        await left.wait()


async def test_connections_beyond_the_cap_are_closed_at_once() -> None:
    """And a place is free again when another client leaves."""
    http = HttpConfig(connections=1)
    async with open_server(FakeDaemon(config=Config(http=http))) as served:
        async with await served.connect() as first:
            await first.send_all(get("/livez"))
            await read_response(first)
            assert await served.ask() == b""
        await served.server.wait_connections(0)
        await served.assert_alive()
