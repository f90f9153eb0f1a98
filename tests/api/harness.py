"""A real server on a real socket, for the length of a block."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import trio
from hypercorn.typing import ASGIFramework

from qedtrio.api.app import build_front
from qedtrio.api.server import Server, serve_listener
from qedtrio.api.sockets import open_socket
from qedtrio.config import HttpConfig
from tests.fakes import FakeDaemon


@dataclass
class Served:
    """A server under test."""

    sock: socket.socket
    daemon: FakeDaemon
    server: Server
    shutdown: trio.Event
    ended: trio.Event

    @property
    def port(self) -> int:
        """Where it listens."""
        port = self.sock.getsockname()[1]
        assert isinstance(port, int)
        return port

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A stock client."""
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}", timeout=10
        ) as client:
            yield client

    async def connect(self) -> trio.SocketStream:
        """A client that may do anything."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        assert isinstance(stream, trio.SocketStream)
        return stream

    async def ask(self, *parts: bytes) -> bytes:
        """Send bytes, and read until the server closes."""
        stream = await self.connect()
        async with stream:
            for part in parts:
                await stream.send_all(part)
            return await read_to_end(stream)

    async def assert_alive(self) -> None:
        """A new client gets its answer."""
        assert b" 200 " in await self.ask(get("/livez", "connection: close"))


@asynccontextmanager
async def open_server(
    daemon: FakeDaemon | None = None,
    *,
    app: ASGIFramework | None = None,
    http: HttpConfig | None = None,
    grace_seconds: float = 1.0,
) -> AsyncIterator[Served]:
    """Serve the native API over a fake daemon, or `app`."""
    daemon = daemon or FakeDaemon()
    limits = http or daemon.config.http
    with trio.fail_after(20):
        async with (
            open_socket("127.0.0.1:0", {}) as sock,
            trio.open_nursery() as nursery,
        ):
            shutdown, ended = trio.Event(), trio.Event()

            async def serve(  # noqa: ASYNC128  # hands it on
                task_status: trio.TaskStatus[Server],
            ) -> None:
                await serve_listener(
                    app or build_front(daemon.services()),
                    sock,
                    limits,
                    shutdown=shutdown,
                    grace_seconds=grace_seconds,
                    task_status=task_status,
                )
                ended.set()

            server = await nursery.start(serve)
            yield Served(sock, daemon, server, shutdown, ended)
            nursery.cancel_scope.cancel()


async def read_to_end(stream: trio.SocketStream) -> bytes:
    """Everything until the server closes; a reset counts as closed."""
    received = bytearray()
    with trio.fail_after(10):
        try:
            async for part in stream:
                received += part
        except trio.BrokenResourceError:
            pass
    return bytes(received)


async def read_response(stream: trio.SocketStream) -> tuple[int, dict[str, object]]:
    """One response with a JSON body of declared length."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        received += await stream.receive_some()
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += await stream.receive_some()
    assert len(body) == length
    return int(head.split()[1]), json.loads(body)


def get(path: str, *headers: str) -> bytes:
    """A GET request."""
    return request("GET", path, b"", *headers)


def post(path: str, body: object, *headers: str) -> bytes:
    """A POST request with a JSON body."""
    return request(
        "POST",
        path,
        json.dumps(body).encode(),
        "content-type: application/json",
        *headers,
    )


def request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    """A request's bytes."""
    lines = [f"{method} {path} HTTP/1.1", "host: test", *headers]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
