"""The small HTTP client: keep-alive, deadlines, lines, and honest failures."""

from functools import partial
from pathlib import Path

import pytest
import trio

from qedtrio.cli.http import Address, Connection, TransportError, open_connection
from tests.cli.fakes import Answer, Asked, Server, json_answer, serve_tcp


async def echo(asked: Asked) -> Answer:
    """Say what was asked, and on which connection."""
    await trio.lowlevel.checkpoint()
    return json_answer(
        {
            "method": asked.method,
            "path": asked.path,
            "body": asked.body.decode(),
            "connection": asked.connection,
            "host": asked.headers[b"host"].decode(),
        }
    )


async def test_requests_share_one_connection() -> None:
    """Keep-alive: the second request needs no new connection."""
    with trio.fail_after(10):
        async with serve_tcp(echo) as url, open_connection(url) as connection:
            first = await connection.request("POST", "/a", {"x": "é"}, seconds=5)
            second = await connection.request("GET", "/b?c=1", seconds=5)

    said = first.json(dict[str, object])
    assert (first.status, said["method"], said["body"]) == (200, "POST", '{"x":"é"}')
    assert said["host"] == url.removeprefix("http://")
    assert second.json(dict[str, object])["body"] == ""
    assert second.json(dict[str, object])["connection"] == 1


async def test_bytes_are_sent_as_they_are() -> None:
    """A body encoded once can be sent many times."""
    with trio.fail_after(10):
        async with serve_tcp(echo) as url, open_connection(url) as connection:
            reply = await connection.request("POST", "/", b'{"ready": 1}', seconds=5)

    assert reply.json(dict[str, object])["body"] == '{"ready": 1}'


async def test_a_closed_connection_is_opened_again() -> None:
    """`Connection: close` costs a connection, never an error."""

    async def closing(asked: Asked) -> Answer:
        await trio.lowlevel.checkpoint()
        return Answer(body=b"%d" % asked.connection, close=True)

    with trio.fail_after(10):
        async with serve_tcp(closing) as url, open_connection(url) as connection:
            first = await connection.request("GET", "/", seconds=5)
            second = await connection.request("GET", "/", seconds=5)

    assert (first.body, second.body) == (b"1", b"2")


async def test_a_unix_socket_is_spoken_to_by_path(tmp_path: Path) -> None:
    """`unix:/path` works like a port."""
    path = tmp_path / "api.sock"
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(str(path))
    listener.listen()
    serve = partial(
        trio.serve_listeners, Server(echo).talk, [trio.SocketListener(listener)]
    )
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve)
            async with open_connection(f"unix:{path}") as connection:
                reply = await connection.request("GET", "/x", seconds=5)
            nursery.cancel_scope.cancel()

    assert reply.json(dict[str, object])["host"] == "localhost"


async def test_a_silent_server_meets_the_deadline() -> None:
    """No reply in time is an error that names the request; then it reconnects."""

    async def silent_at_first(asked: Asked) -> Answer:
        if asked.path == "/silent":
            await trio.sleep_forever()
        return await echo(asked)

    with trio.fail_after(10):
        async with (
            serve_tcp(silent_at_first) as url,
            open_connection(url) as connection,
        ):
            with pytest.raises(TransportError, match="GET /silent: no reply in time"):
                await connection.request("GET", "/silent", seconds=0.05)
            reply = await connection.request("GET", "/", seconds=5)

    assert reply.json(dict[str, object])["connection"] == 2


async def test_cancelling_a_request_closes_its_connection() -> None:
    """The server sees the client go away, and so can stop working for it."""
    gone = trio.Event()

    async def until_gone(stream: trio.abc.Stream) -> None:
        async with stream:
            while await stream.receive_some(65536):
                asked.set()
            gone.set()

    asked = trio.Event()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, until_gone, 0, host="127.0.0.1")
            listeners = await nursery.start(serve)
            url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            async with open_connection(url) as connection:
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as asking:
                        asking.start_soon(
                            partial(connection.request, "GET", "/", seconds=60)
                        )
                        await asked.wait()
                        scope.cancel()
                await gone.wait()
            nursery.cancel_scope.cancel()


async def test_nobody_listening_is_an_error_with_the_address() -> None:
    """A refused connection says where."""
    async with serve_tcp(echo) as url:
        pass
    with trio.fail_after(10), pytest.raises(TransportError, match=f"to {url}"):
        async with open_connection(url):
            pass


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "127.0.0.1:8733", "http://"])
async def test_other_addresses_are_refused(url: str) -> None:
    """Only `http://` and `unix:` are spoken."""
    with pytest.raises(TransportError, match="not an http:// or unix: address"):
        await Connection(Address(url), connect_seconds=1).connect()


async def test_lines_arrive_one_by_one() -> None:
    """NDJSON is split at newlines wherever the chunks are cut."""

    async def stream(asked: Asked) -> Answer:
        await trio.lowlevel.checkpoint()
        assert asked.headers[b"accept"] == b"application/x-ndjson"
        return Answer(body=[b'{"a"', b':1}\n{"b":2}\n{"c', b'":3}\n', b"tail"])

    with trio.fail_after(10):
        async with serve_tcp(stream) as url, open_connection(url) as connection:
            for _ in range(2):  # the second on the same connection
                async with connection.lines("POST", "/", {}, seconds=5) as lines:
                    got = [line async for line in lines]

                assert got == [b'{"a":1}', b'{"b":2}', b'{"c":3}', b"tail"]


async def test_leaving_lines_early_leaves_a_usable_connection() -> None:
    """What was not read does not leak into the next reply."""

    async def endless(asked: Asked) -> Answer:
        await trio.lowlevel.checkpoint()
        chunks = [b"%d\n" % n for n in range(50_000)]
        return Answer(body=chunks if asked.path == "/lines" else b"next")

    with trio.fail_after(10):
        async with serve_tcp(endless) as url, open_connection(url) as connection:
            async with connection.lines("GET", "/lines", seconds=5) as lines:
                first = await anext(lines)
            reply = await connection.request("GET", "/", seconds=5)

    assert (first, reply.body) == (b"0", b"next")


async def test_a_broken_off_reply_is_an_error() -> None:
    """Half a body never passes for a whole one."""

    async def cut(asked: Asked) -> Answer:
        await trio.lowlevel.checkpoint()
        return Answer(body=[asked.path.encode()], cut=True)

    with trio.fail_after(10):
        async with serve_tcp(cut) as url, open_connection(url) as connection:
            with pytest.raises(
                TransportError, match="without sending complete message body"
            ):
                await connection.request("GET", "/", seconds=5)
            async with connection.lines("GET", "/x", seconds=5) as lines:
                with pytest.raises(
                    TransportError, match="without sending complete message body"
                ):
                    [line async for line in lines]


async def test_a_connection_closed_instead_of_a_reply_is_an_error() -> None:
    """A daemon that ends says nothing more, and the client says that."""

    async def close_at_once(stream: trio.abc.Stream) -> None:
        async with stream:
            await stream.receive_some(65536)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, close_at_once, 0, host="127.0.0.1")
            listeners = await nursery.start(serve)
            url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            async with open_connection(url) as connection:
                with pytest.raises(TransportError, match="closed before the reply"):
                    await connection.request("GET", "/", seconds=5)
            nursery.cancel_scope.cancel()


async def test_a_refused_stream_is_an_error() -> None:
    """Lines of an error reply are not lines of a result."""

    async def refuse(asked: Asked) -> Answer:
        await trio.lowlevel.checkpoint()
        return json_answer({"code": "overloaded", "detail": asked.path}, 503)

    with trio.fail_after(10):
        async with serve_tcp(refuse) as url, open_connection(url) as connection:
            lines = connection.lines("GET", "/", seconds=5)
            with pytest.raises(TransportError, match="answered 503"):
                await lines.__aenter__()


async def test_garbage_for_json_is_an_error() -> None:
    """A reply of another shape is named, not passed on."""

    async def garbage(asked: Asked) -> Answer:
        await trio.lowlevel.checkpoint()
        return Answer(body=b"<html>" if asked.path == "/html" else b'{"a": "x"}')

    with trio.fail_after(10):
        async with serve_tcp(garbage) as url, open_connection(url) as connection:
            html = await connection.request("GET", "/html", seconds=5)
            other = await connection.request("GET", "/", seconds=5)

    for reply in (html, other):
        with pytest.raises(TransportError, match="not the JSON expected"):
            reply.json(dict[str, int])
