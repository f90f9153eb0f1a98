"""Bytes no honest client sends: an answer or a closed door, never a crash."""

import json
import socket
import struct
from collections.abc import AsyncIterator

import h2.config
import h2.connection
import pytest
import trio

from qedtrio.config import Config, HttpConfig
from tests.api.harness import Served, get, open_server, post, read_to_end
from tests.fakes import FakeDaemon

H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: bKdPyn3u98cTfZJSh4TNeQ==\r\n\r\n"
)
H2C = (
    b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: upgrade, http2-settings, close\r\n"
    b"upgrade: h2c\r\nhttp2-settings: %s\r\n\r\n"
)
POST = b"POST /v1/run HTTP/1.1\r\nhost: x\r\n"
CLOSE = b"connection: close\r\n\r\n"


def http2(*headers: tuple[bytes, bytes]) -> bytes:
    """An HTTP/2 client that does not check what it sends."""
    config = h2.config.H2Configuration(
        header_encoding=None,
        validate_outbound_headers=False,
        normalize_outbound_headers=False,
    )
    client = h2.connection.H2Connection(config)
    client.initiate_connection()
    client.send_headers(1, list(headers), end_stream=True)
    return client.data_to_send()


REQUEST2 = (b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"x")

# What is sent, and what the answer begins with; None stands for anything.
INPUTS: dict[str, tuple[bytes, bytes | None]] = {
    "garbage": (b"\x00\xff\xfe garbage\r\n\r\n", b"HTTP/1.1 400 "),
    "huge header": (
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 200_000,
        b"HTTP/1.1 431 ",
    ),
    "non-ascii path": (b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400 "),
    "percent path": (
        b"GET /%ff%fe%00 HTTP/1.1\r\nhost: x\r\n" + CLOSE,
        b"HTTP/1.1 404 ",
    ),
    "negative length": (POST + b"content-length: -5\r\n\r\n", b"HTTP/1.1 400 "),
    "two lengths": (
        POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 400 ",
    ),
    "length of 30 digits": (
        POST + b"content-length: " + b"9" * 30 + b"\r\n\r\n",
        b"HTTP/1.1 400 ",
    ),
    "bad chunk": (
        POST + b"transfer-encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
        b"HTTP/1.1 400 ",
    ),
    "odd coding": (POST + b"transfer-encoding: gzip\r\n\r\n", b"HTTP/1.1 501 "),
    "bad method": (b"G@T / HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400 "),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
    "two hosts": (b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", b"HTTP/1.1 400 "),
    "http 0.9": (b"GET /\r\n\r\n", b"HTTP/1.1 400 "),
    "http 3.1": (b"GET / HTTP/3.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 505 "),
    "not a URL": (b"GET x://[ HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"HTTP/1.1 400 "),
    "bad URL": (b"GET http://[x/ HTTP/1.1\r\nhost: [\r\n" + CLOSE, b"HTTP/1.1 400 "),
    "no slash": (b"GET foo HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"HTTP/1.1 400 "),
    "slashes": (b"GET //[ HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"HTTP/1.1 404 "),
    "foreign URL": (
        b"GET http://x:99999/livez HTTP/1.1\r\nhost: x\r\n" + CLOSE,
        b"HTTP/1.1 200 ",
    ),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nhost: x\r\n" + CLOSE, None),
    "odd host": (b"GET /docs HTTP/1.1\r\nhost: \xff\xfe[::1\r\n" + CLOSE, None),
    "odd cookie": (
        b"GET /docs HTTP/1.1\r\nhost: x\r\ncookie: \xff=\xfe\r\n" + CLOSE,
        b"HTTP/1.1 200 ",
    ),
    "odd query": (
        b"GET /docs?%ff=%fe&a[]=%80 HTTP/1.1\r\nhost: x\r\n" + CLOSE,
        b"HTTP/1.1 200 ",
    ),
    "head": (b"HEAD /livez HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"HTTP/1.1 200 "),
    "http 1.0": (b"GET /livez HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 "),
    "bytes after close": (
        b"GET /livez HTTP/1.1\r\nhost: x\r\n" + CLOSE + b"GET / HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 ",
    ),
    "websocket with trailing bytes": (UPGRADE + b"x", None),
    "websocket where there is none": (UPGRADE, b"HTTP/1.1 4"),
    "websocket by post": (UPGRADE.replace(b"GET", b"POST"), b"HTTP/1.1 4"),
    "websocket without a key": (
        UPGRADE.replace(b"sec-websocket-key", b"sec-websocket-kex"),
        b"HTTP/1.1 400 ",
    ),
    "http/2": (http2(*REQUEST2, (b":path", b"/")), b"HTTP/1.1 505 "),
    "http/2, non-ascii path": (
        http2(*REQUEST2, (b":path", b"/\xff\xfe")),
        b"HTTP/1.1 505 ",
    ),
    "http/2, connect without path": (
        http2((b":method", b"CONNECT"), (b":authority", b"x")),
        b"HTTP/1.1 505 ",
    ),
    "http/2, garbage": (H2_PREFACE + b"\xff" * 100, b"HTTP/1.1 505 "),
    "h2c upgrade": (H2C % b"AAMAAABkAARAAAAAAAIAAAAA", b"HTTP/1.1 200 "),
    "h2c upgrade, bad settings": (H2C % b"!!!!", b"HTTP/1.1 200 "),
}


@pytest.mark.parametrize("name", INPUTS)
async def test_hostile_bytes_end_in_an_answer_or_a_closed_door(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A 4xx where one is due; the server goes on, and its log stays calm."""
    sent, expected = INPUTS[name]
    http = HttpConfig(keep_alive_seconds=0.2)
    async with open_server(FakeDaemon(config=Config(http=http))) as served:
        reply = await served.ask(sent)
        if expected is not None:
            assert reply.startswith(expected), reply
        assert not reply.startswith(b"HTTP/1.1 500 ")
        await served.assert_alive()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_protocol_errors_are_problems_with_an_id() -> None:
    """Also bytes that never reach the application get the usual shape."""
    async with open_server() as served:
        reply = await served.ask(b"G@T / HTTP/1.1\r\nhost: x\r\n\r\n")

    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"x-request-id: " in head
    assert json.loads(body)["code"] == "malformed_request"


async def test_expect_continue_is_answered_before_the_body() -> None:
    """A client that waits for 100 gets it."""
    body = b'{"text": "x"}'
    head = b"POST /bench/echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
    head += b"content-length: %d\r\n" % len(body)
    async with open_server() as served, await served.connect() as stream:
        await stream.send_all(head + CLOSE)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(body)
        assert (await read_to_end(stream)).startswith(b"HTTP/1.1 200 ")


async def leave(served: Served, how: str) -> None:
    """Send a part of a request and be gone, in one of many ways."""
    stream = await served.connect()
    whole = post("/v1/run", {"code": "1"})
    parts = {
        "says nothing": b"",
        "half a head": whole[:20],
        "half a body": whole[:-3],
        "unread answer": whole,
        "two requests": whole + whole,
        "pipelined garbage": whole + b"\x00" * 100_000,
    }
    await stream.send_all(parts[how.partition(", ")[0]])
    match how.partition(", ")[2]:
        case "resets":
            linger = struct.pack("ii", 1, 0)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        case "half-closes":
            await stream.send_eof()
            await read_to_end(stream)
    await stream.aclose()


WAYS = [
    f"{part}, {end}"
    for part in (
        "says nothing",
        "half a head",
        "half a body",
        "unread answer",
        "two requests",
        "pipelined garbage",
    )
    for end in ("closes", "resets", "half-closes")
]


@pytest.fixture
async def watched() -> AsyncIterator[Served]:
    """A server that idles for long, so that nothing ends by a time-out."""
    http = HttpConfig(keep_alive_seconds=3600)
    async with open_server(FakeDaemon(config=Config(http=http))) as served:
        yield served


async def test_no_way_to_leave_keeps_a_connection(watched: Served) -> None:
    """Each connection ends soon after its client left, however it left."""
    async with trio.open_nursery() as nursery:
        for how in WAYS * 3:
            nursery.start_soon(leave, watched, how)
    await watched.assert_alive()

    with trio.fail_after(10):
        await watched.server.wait_connections(0)


async def test_slow_heads_are_bounded() -> None:
    """Dripping header bytes buys no more than the idle limit."""
    http = HttpConfig(keep_alive_seconds=0.2)
    async with (
        open_server(FakeDaemon(config=Config(http=http))) as served,
        await served.connect() as stream,
    ):
        await stream.send_all(get("/livez")[:-4])
        with trio.fail_after(2):
            assert await read_to_end(stream) == b""
