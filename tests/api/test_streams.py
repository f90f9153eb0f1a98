"""Newline-delimited JSON: lines come when they are made, and end properly."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest
import trio

from qedtrio.api.app import build_app
from qedtrio.api.front import Front
from qedtrio.api.messages import Reply, Request
from qedtrio.api.routing import Route, RouteTable
from qedtrio.api.services import Services
from qedtrio.api.streams import PENDING_CHARS, open_run_lines
from qedtrio.errors import WorkerLostError
from qedtrio.results import RunResult, RunStatus, Verdict
from qedtrio.sessions.model import OnOutput, RunRequest
from qedtrio.verify.model import VerifyItem
from tests.api.harness import get, open_server, post, read_to_end
from tests.fakes import FakeDaemon, FakeSessions, FakeVerifier

NDJSON = "accept: application/x-ndjson"
CLOSE = "connection: close"
DONE = RunResult(run_id="r", status=RunStatus.OK, stdout="all of it")


class Script:
    """A run that prints when the test says so."""

    def __init__(self, end: RunResult | Exception = DONE) -> None:
        self.on_output: OnOutput | None = None
        self.begun = trio.Event()
        self.finish = trio.Event()
        self.cancelled = trio.Event()
        self.end = end

    async def run(self, _request: RunRequest, on_output: OnOutput | None) -> RunResult:
        """Wait for the test's word."""
        self.on_output = on_output
        self.begun.set()
        try:
            await self.finish.wait()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    def daemon(self) -> FakeDaemon:
        """Runs this script whatever the code."""
        return FakeDaemon(sessions=FakeSessions(self.run))


async def lines_of(stream: trio.SocketStream) -> AsyncIterator[dict[str, object]]:
    """The JSON lines of a chunked response, as they arrive."""
    buffer = b""
    async for part in stream:
        buffer += part
        *whole, buffer = buffer.split(b"\n")
        for line in whole:
            if line.startswith(b"{"):
                yield json.loads(line)


async def test_output_arrives_while_the_run_goes_on() -> None:
    """Each piece is sent when it is printed; the result comes last."""
    script = Script()
    async with open_server(script.daemon()) as served, await served.connect() as client:
        await client.send_all(post("/v1/run", {"code": "1"}, NDJSON, CLOSE))
        await script.begun.wait()
        assert script.on_output is not None
        lines = lines_of(client)
        script.on_output("stdout", "one\n")
        assert await anext(lines) == {"event": "stdout", "text": "one\n"}
        script.on_output("stderr", "two")
        assert await anext(lines) == {"event": "stderr", "text": "two"}
        script.finish.set()
        result = await anext(lines)
        rest = [line async for line in lines]

    assert (result["event"], result["stdout"]) == ("result", "all of it")
    assert rest == []


async def test_failure_before_any_line_is_a_status() -> None:
    """Nothing was sent yet: the error keeps its HTTP form."""
    script = Script(WorkerLostError("gone"))
    script.finish.set()
    async with open_server(script.daemon()) as served:
        reply = await served.ask(post("/v1/run", {"code": "1"}, NDJSON, CLOSE))
        unknown = await served.ask(
            post("/v1/sessions/none/run", {"code": "1"}, NDJSON, CLOSE)
        )

    assert reply.startswith(b"HTTP/1.1 500 ")
    assert b'"code":"worker_lost"' in reply
    assert unknown.startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("error", [WorkerLostError("gone"), ValueError("secret")])
async def test_failure_mid_stream_is_the_last_line(error: Exception) -> None:
    """A problem as an event, and a proper end of the stream."""
    script = Script(error)
    async with open_server(script.daemon()) as served, await served.connect() as client:
        await client.send_all(post("/v1/run", {"code": "1"}, NDJSON, CLOSE))
        await script.begun.wait()
        assert script.on_output is not None
        script.on_output("stdout", "one")
        script.finish.set()
        reply = await read_to_end(client)

    found = [line for line in reply.split(b"\n") if line.startswith(b"{")]
    last = json.loads(found[-1])
    assert (last["event"], last["status"]) == ("problem", 500)
    assert reply.endswith(b"0\r\n\r\n")
    assert b"secret" not in reply


async def test_leaving_a_stream_cancels_its_run() -> None:
    """Also before the first line."""
    for has_line in (True, False):
        script = Script()
        async with open_server(script.daemon()) as served:
            client = await served.connect()
            await client.send_all(post("/v1/run", {"code": "1"}, NDJSON))
            await script.begun.wait()
            assert script.on_output is not None
            if has_line:
                script.on_output("stdout", "one")
                await client.receive_some()
            await client.aclose()
            with trio.fail_after(1):
                await script.cancelled.wait()


async def test_unread_output_is_bounded_and_the_gap_is_told() -> None:
    """What does not fit is left out of the stream, not kept."""
    piece = "x" * 1000

    async def flood(on_output: OnOutput) -> RunResult:
        for _ in range(PENDING_CHARS // 500):
            on_output("stdout", piece)
        await trio.lowlevel.checkpoint()
        return DONE

    async with open_run_lines(flood, "id") as lines:
        found = [json.loads(line) async for line in lines]

    texts = [line["text"] for line in found[:-1]]
    streamed = sum(text == piece for text in texts)
    assert streamed * 1000 <= PENDING_CHARS
    assert texts[-1] == (
        f"\n[... {PENDING_CHARS // 500 * 1000 - streamed * 1000}"
        " characters not streamed ...]\n"
    )
    assert found[-1]["event"] == "result"


async def test_stream_that_breaks_its_promise_is_cut() -> None:
    """Lines that raise after the first cannot pass for a whole stream."""

    @asynccontextmanager
    async def lines() -> AsyncIterator[AsyncIterator[bytes]]:
        async def broken() -> AsyncGenerator[bytes, None]:
            await trio.lowlevel.checkpoint()
            yield b"{}\n"
            raise ValueError("secret")

        async with aclosing(broken()) as made:
            yield made

    async def handle(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply.stream(lines)

    route = Route(
        method="GET", path="/lines", handler=handle, summary="Break.", is_hot=True
    )
    services, table = FakeDaemon().services(), RouteTable([route])
    front = Front(table, services, build_app(table, services))
    async with open_server(app=front) as served:
        reply = await served.ask(get("/lines", CLOSE))

    assert reply.count(b"HTTP/1.1 ") == 1
    assert not reply.endswith(b"0\r\n\r\n")
    assert b"problem" not in reply


async def test_verdicts_stream_as_they_finish() -> None:
    """A slow item holds back none of the others."""
    slow = trio.Event()

    async def judge(item: VerifyItem) -> None:
        if item.gold == "slow":
            await slow.wait()

    items = [{"gold": gold, "prediction": "1"} for gold in ("slow", "1", "2")]
    daemon = FakeDaemon(verifier=FakeVerifier(judge))
    async with open_server(daemon) as served, await served.connect() as client:
        await client.send_all(post("/v1/verify", {"items": items}, NDJSON, CLOSE))
        lines = lines_of(client)
        first = [await anext(lines), await anext(lines)]
        slow.set()
        rest = [line async for line in lines]

    assert sorted(str(line["index"]) for line in first) == ["1", "2"]
    assert [line["index"] for line in rest] == [0]
    assert rest[0]["status"] == "wrong"


async def test_single_verdict_streams_as_one_line() -> None:
    """And an empty batch as none."""
    item = {"gold": "1", "prediction": "1"}
    headers = {"accept": "application/x-ndjson"}
    async with open_server() as served, served.client() as client:
        single = await client.post("/v1/verify", json=item, headers=headers)
        empty = await client.post("/v1/verify", json={"items": []}, headers=headers)

    assert json.loads(single.text)["index"] == 0
    assert (empty.status_code, empty.text) == (200, "")


class Forgetful(FakeVerifier):
    """Loses the last verdict of a batch."""

    @asynccontextmanager
    async def verify_many(
        self, items: Sequence[VerifyItem]
    ) -> AsyncIterator[AsyncIterator[tuple[int, Verdict]]]:
        """Judge all but one."""
        async with super().verify_many(items[:-1]) as verdicts:
            yield verdicts


async def test_lost_verdict_is_never_silent() -> None:
    """A batch that ends early says so, streamed or not."""
    items = [{"gold": "1", "prediction": "1"}] * 2
    daemon = FakeDaemon(verifier=Forgetful())
    async with open_server(daemon) as served, served.client() as client:
        body = {"items": items}
        streamed = await client.post(
            "/v1/verify", json=body, headers={"accept": "application/x-ndjson"}
        )
        whole = await client.post("/v1/verify", json=body)

    assert json.loads(streamed.text.splitlines()[-1])["code"] == "internal_error"
    assert whole.status_code == 500


async def test_verifier_that_fails_mid_batch_tells_it_in_the_last_line() -> None:
    """A defect ends the stream with a problem."""
    go_on = trio.Event()

    async def judge(item: VerifyItem) -> None:
        if item.gold == "bad":
            await go_on.wait()
            raise ValueError("secret")

    items = [{"gold": gold, "prediction": "1"} for gold in ("bad", "1")]
    daemon = FakeDaemon(verifier=FakeVerifier(judge))
    async with open_server(daemon) as served, await served.connect() as client:
        await client.send_all(post("/v1/verify", {"items": items}, NDJSON, CLOSE))
        lines = lines_of(client)
        first = await anext(lines)
        go_on.set()
        rest = [line async for line in lines]

    assert first["index"] == 1
    assert [line["code"] for line in rest] == ["internal_error"]
