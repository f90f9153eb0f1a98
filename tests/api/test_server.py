"""The server as a whole: failures, restarts, the end."""

import socket
from functools import partial

import pytest
import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope
from trio.testing import wait_all_tasks_blocked

from qedtrio.api.server import serve_listener
from qedtrio.api.sockets import open_socket
from qedtrio.config import HttpConfig
from tests.api.harness import get, open_server, read_response, read_to_end


class CrashError(BaseException):
    """Beyond what a connection keeps to itself."""


class Crashing:
    """Brings the whole server down on `/crash`, waits on `/wait`."""

    def __init__(self) -> None:
        self.crashes = 0
        self.waiting = trio.Event()
        self.proceed = trio.Event()

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Serve one request."""
        assert scope["type"] == "http"
        await receive()
        if scope["path"] == "/crash":
            self.crashes += 1
            raise CrashError
        if scope["path"] == "/wait":
            self.waiting.set()
            await self.proceed.wait()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}", "more_body": False})


async def test_server_restarts_on_the_same_socket_after_a_crash() -> None:
    """Clients that come while it is down wait and are served."""
    app = Crashing()
    async with open_server(app=app) as served:
        for number in range(1, 4):
            bystander = await served.connect()
            await bystander.send_all(get("/"))
            await read_response(bystander)
            await served.ask(get("/crash"))
            assert await read_to_end(bystander) == b""
            await bystander.aclose()
            reply = await served.ask(get("/", "connection: close"))
            assert reply.startswith(b"HTTP/1.1 200 ")
            assert app.crashes == number


async def test_tasks_beside_the_server_survive_its_crash() -> None:
    """What runs in the nursery that started it goes on."""
    app = Crashing()
    async with open_server(app=app) as served, trio.open_nursery() as nursery:
        nursery.start_soon(app.waiting.wait)
        await served.ask(get("/crash"))
        assert not nursery.cancel_scope.cancel_called
        assert len(nursery.child_tasks) == 1
        await served.ask(get("/", "connection: close"))
        nursery.cancel_scope.cancel()


async def test_graceful_end_finishes_what_is_under_way() -> None:
    """Idle connections close, the busy one gets its answer, then all ends."""
    app = Crashing()
    async with open_server(app=app, grace_seconds=10) as served:
        idle, busy = await served.connect(), await served.connect()
        await idle.send_all(get("/"))
        await read_response(idle)
        await busy.send_all(get("/wait"))
        await app.waiting.wait()
        served.shutdown.set()
        with trio.fail_after(1):
            assert await read_to_end(idle) == b""
        assert not served.ended.is_set()
        app.proceed.set()
        reply = await read_to_end(busy)
        with trio.fail_after(1):
            await served.ended.wait()
        await idle.aclose()
        await busy.aclose()

    assert reply.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in reply.lower()


async def test_grace_is_bounded() -> None:
    """A handler that will not end is cut off, and so is a stalled reader."""

    async def endless(
        _scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        body = b"x" * 65536
        while True:
            await send({"type": "http.response.body", "body": body, "more_body": True})

    async with (
        open_server(app=endless, grace_seconds=0.1) as served,
        await served.connect() as stream,
    ):
        await stream.send_all(get("/"))
        await stream.receive_some()
        served.shutdown.set()
        with trio.fail_after(2):
            await served.ended.wait()


async def test_request_that_races_the_end_is_answered() -> None:
    """One on its way to an idle connection gets an answer, not a reset."""
    app = Crashing()
    async with (
        open_server(app=app, grace_seconds=5) as served,
        await served.connect() as stream,
    ):
        await stream.send_all(get("/"))
        await read_response(stream)
        served.shutdown.set()
        await wait_all_tasks_blocked()
        await stream.send_all(get("/"))
        reply = await read_to_end(stream)

    assert reply.startswith(b"HTTP/1.1 200 ")


async def test_cancelling_ends_it_at_once() -> None:
    """Whatever is under way, and the socket is still its owner's."""
    app = Crashing()
    async with open_socket("127.0.0.1:0", {}) as sock:
        async with trio.open_nursery() as nursery:
            serve = partial(
                serve_listener,
                app,
                sock,
                HttpConfig(),
                shutdown=trio.Event(),
                grace_seconds=60,
            )
            await nursery.start(serve)
            stream = await trio.open_tcp_stream(*sock.getsockname())
            await stream.send_all(get("/wait"))
            await app.waiting.wait()
            nursery.cancel_scope.cancel()
        await stream.aclose()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


async def test_accepted_sockets_notice_vanished_peers() -> None:
    """TCP keep-alive is inherited from the listening socket."""
    async with open_server() as served, await served.connect() as stream:
        await stream.send_all(get("/livez"))
        await read_response(stream)
        (connection,) = served.server.connections
        accepted = connection._stream.socket

        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        limit = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert limit == 120_000


@pytest.mark.slow
async def test_a_thousand_connections_leave_nothing() -> None:
    """Open, ask, leave; many at once."""
    async with open_server() as served:
        limit = trio.CapacityLimiter(50)

        async def visit() -> None:
            async with limit:
                await served.assert_alive()

        async with trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(visit)
        await served.server.wait_connections(0)
