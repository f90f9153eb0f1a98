"""The load generator: every answer checked, every error counted."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from qedtrio.cli.bench.load import ERRORS_IN_A_ROW, WARM_UP_REQUESTS, apply_load
from qedtrio.cli.bench.scenarios import ECHO, SCENARIOS, Once, Scenario
from qedtrio.cli.calls import RefusedError
from qedtrio.cli.http import Connection
from tests.cli.fakes import Answer, Asked, json_answer, serve_tcp

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


class GoodDaemon:
    """Answers every scenario as a daemon should, and counts."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.sessions = 0
        self.predictions: Counter[str] = Counter()

    async def __call__(self, asked: Asked) -> Answer:
        """Answer one request."""
        await trio.lowlevel.checkpoint()
        parts = asked.path.split("/")[2:]
        self.seen[f"{asked.method} {parts[0]} {parts[-1]}"] += 1
        body = msgspec.json.decode(asked.body) if asked.body else {}
        match asked.method, parts:
            case "POST", ["sessions"]:
                self.sessions += 1
                return json_answer({"session_id": f"{self.sessions}", "tier": "A"}, 201)
            case "POST", ["sessions", _, "run"]:
                return json_answer({"status": "ok", "stdout": "2\n"})
            case "POST", ["run"]:
                return json_answer({"status": "ok", "stdout": "7\n"})
            case "POST", ["verify"]:
                return self.verify(body)
            case "DELETE", ["sessions", _]:
                self.sessions -= 1
        return json_answer({})

    def verify(self, body: dict[str, object]) -> Answer:
        """Call everything correct."""
        items = body.get("items")
        if isinstance(items, list):
            self.predictions.update(item["prediction"] for item in items)
            return json_answer({"verdicts": [{"status": "correct"} for _ in items]})
        self.predictions[str(body["prediction"])] += 1
        return json_answer({"status": "correct"})


@pytest.mark.parametrize("name", ["echo", *BY_NAME])
async def test_every_scenario_measures_a_good_daemon(name: str) -> None:
    """Right answers are samples, nothing else is, and sessions are closed."""
    daemon = GoodDaemon()
    scenario = BY_NAME.get(name, ECHO)
    with trio.fail_after(10):
        async with serve_tcp(daemon) as url:
            measured = await apply_load(url, scenario, clients=3, seconds=0.1)

    assert measured.errors == {}
    assert measured.requests > 3
    assert daemon.sessions == 0
    assert measured.p50_ms is not None
    assert measured.p99_ms is not None
    assert measured.p50_ms <= measured.p99_ms < 1000 * measured.seconds


async def test_warm_up_is_excluded() -> None:
    """The daemon saw just the warm-up more than was counted."""
    daemon = GoodDaemon()
    with trio.fail_after(10):
        async with serve_tcp(daemon) as url:
            measured = await apply_load(url, ECHO, clients=2, seconds=0.05)

    assert daemon.seen.total() == measured.requests + 2 * WARM_UP_REQUESTS


async def test_no_item_is_verified_twice() -> None:
    """Neither a cache nor single flight can flatter the figures."""
    daemon = GoodDaemon()
    with trio.fail_after(10):
        async with serve_tcp(daemon) as url:
            for name in ("verify_batch", "verify_single"):
                await apply_load(url, BY_NAME[name], clients=2, seconds=0.05)

    assert daemon.predictions.total() > 100
    assert set(daemon.predictions.values()) == {1}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (json_answer({"status": "timed_out", "stdout": ""}), "run ended as timed_out"),
        (json_answer({"status": "ok", "stdout": "3\n"}), "run ended as ok"),
        (
            json_answer({"code": "overloaded", "detail": "queue 12"}, 503),
            "HTTP 503 overloaded",
        ),
        (Answer(body=b"?"), "transport: DecodeError"),
        (Answer(body=[b"half"], cut=True), "transport: RemoteProtocolError"),
    ],
    ids=["status", "output", "refusal", "garbage", "cut"],
)
async def test_a_wrong_answer_is_an_error_and_no_sample(
    answer: Answer, kind: str
) -> None:
    """What was not answered rightly never counts as fast."""
    calls = 0

    async def failing_later(_: Asked) -> Answer:
        nonlocal calls
        await trio.lowlevel.checkpoint()
        calls += 1
        good = json_answer({"status": "ok", "stdout": "7\n"})
        return good if calls <= WARM_UP_REQUESTS + 1 else answer

    with trio.fail_after(10):
        async with serve_tcp(failing_later) as url:
            scenario = BY_NAME["stateless_science"]
            measured = await apply_load(url, scenario, clients=1, seconds=60)

    assert measured.requests == 1
    assert measured.errors == {kind: ERRORS_IN_A_ROW}  # and then it gave up


async def test_a_client_that_cannot_prepare_is_an_error() -> None:
    """One refused client is counted, and the others go on."""
    opened = 0

    @asynccontextmanager
    async def prepare(connection: Connection) -> AsyncIterator[Once]:
        nonlocal opened
        opened += 1
        if opened == 2:
            raise RefusedError("HTTP 503 overloaded: full")

        async def once() -> None:
            await connection.request("GET", "/v1/x", seconds=5)

        yield once

    scenario = Scenario(name="picky", prepare=prepare)
    with trio.fail_after(10):
        async with serve_tcp(GoodDaemon()) as url:
            measured = await apply_load(url, scenario, clients=3, seconds=0.05)

    assert measured.errors == {"HTTP 503 overloaded": 1}
    assert measured.requests > 0


async def test_nobody_there_is_errors_only() -> None:
    """A dead address gives no figures and does not hang."""
    async with serve_tcp(GoodDaemon()) as url:
        pass
    with trio.fail_after(10):
        measured = await apply_load(url, ECHO, clients=2, seconds=60)

    assert measured.requests == 0
    assert sum(measured.errors.values()) == 2


async def test_the_last_request_is_waited_for_and_counted() -> None:
    """A request longer than the measured time is still a sample."""
    asked = 0

    async def slow_when_warm(_: Asked) -> Answer:
        nonlocal asked
        asked += 1
        late = trio.current_time() + (0.1 if asked > WARM_UP_REQUESTS else 0)
        await trio.sleep_until(late)
        return json_answer({})

    with trio.fail_after(10):
        async with serve_tcp(slow_when_warm) as url:
            measured = await apply_load(url, ECHO, clients=1, seconds=0.01)

    assert measured.requests == 1
    assert measured.seconds >= 0.1
    assert measured.per_second == pytest.approx(1 / measured.seconds)


async def test_server_cpu_is_the_clock_between_start_and_end() -> None:
    """Warm-up costs nothing, and the figure is per request."""
    daemon = GoodDaemon()

    def clock() -> float:
        return daemon.seen.total() * 0.002

    with trio.fail_after(10):
        async with serve_tcp(daemon) as url:
            measured = await apply_load(
                url, ECHO, clients=2, seconds=0.05, cpu_clock=clock
            )

    assert measured.server_cpu_ms == pytest.approx(2.0)
