"""The native API through a stock client and a real socket."""

import pytest
import trio

from qedtrio.api.status import Readiness
from qedtrio.errors import (
    OverloadedError,
    QueueTimeoutError,
    ReleaseFailedError,
    WorkerLostError,
    WorkerStartError,
)
from qedtrio.results import RunResult, RunStatus
from qedtrio.sessions.model import OnOutput, RunRequest
from tests.api.harness import open_server
from tests.fakes import FakeDaemon, FakeSessions


async def test_create_is_idempotent() -> None:
    """201 for a new session, 200 for the same again, 409 for another body."""
    async with open_server() as served, served.client() as client:
        first = await client.post("/v1/sessions", json={"session_id": "a", "seed": 1})
        again = await client.post("/v1/sessions", json={"session_id": "a", "seed": 1})
        other = await client.post("/v1/sessions", json={"session_id": "a", "seed": 2})

    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.json() == again.json()
    assert first.json()["session_id"] == "a"
    assert other.json()["code"] == "session_conflict"


async def test_everything_in_create_is_optional() -> None:
    """No body at all opens a session with the defaults."""
    async with open_server() as served, served.client() as client:
        reply = await client.post("/v1/sessions")

    assert reply.status_code == 201
    assert reply.json()["state"] == "open"


async def test_limits_reach_the_domain_as_given() -> None:
    """Only the limits that were named are passed on."""
    async with open_server() as served, served.client() as client:
        limits = {"memory_bytes": 2**28, "deadline_seconds": 1.5}
        reply = await client.post("/v1/sessions", json={"limits": limits})

    assert reply.json()["limits"] == limits


async def test_session_lives_and_dies() -> None:
    """List, describe, close, close again; then it is gone, not unknown."""
    async with open_server() as served, served.client() as client:
        await client.post("/v1/sessions", json={"session_id": "a"})
        listed = await client.get("/v1/sessions")
        described = await client.get("/v1/sessions/a")
        closed = await client.delete("/v1/sessions/a")
        again = await client.delete("/v1/sessions/a")
        gone = await client.post("/v1/sessions/a/run", json={"code": "1"})
        unknown = await client.get("/v1/sessions/b")

    assert listed.json() == {"sessions": [described.json()]}
    assert closed.json() == {"session_id": "a", "outcome": "closed"}
    assert again.json() == {"session_id": "a", "outcome": "already_closed"}
    assert (gone.status_code, gone.json()["code"]) == (410, "session_closed")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "session_not_found")


async def test_run_answers_every_field() -> None:
    """A RunResult has all of its keys, also those that are null."""
    async with open_server() as served, served.client() as client:
        await client.post("/v1/sessions", json={"session_id": "a"})
        body = {"code": "print(1)", "stdin": "x", "run_id": "r/1"}
        reply = await client.post("/v1/sessions/a/run", json=body)

    result = reply.json()
    assert result["stdout"] == "print(1)"
    assert (result["run_id"], result["result"]) == ("r/1", "'x'")
    assert result["error"] is None
    assert result["truncated"] == {"stdout_bytes": 0, "stderr_bytes": 0}


async def test_stateless_run_takes_files() -> None:
    """`files` reaches the domain as path → text."""
    async with open_server() as served, served.client() as client:
        body = {"code": "1", "files": {"data/in.txt": "é"}}
        reply = await client.post("/v1/run", json=body)

    assert reply.status_code == 200
    assert served.daemon.sessions.files == {"data/in.txt": "é"}


async def test_interrupt_says_whether_it_met_a_run() -> None:
    """No body is needed."""
    async with open_server() as served, served.client() as client:
        await client.post("/v1/sessions", json={"session_id": "a"})
        reply = await client.post("/v1/sessions/a/interrupt")

    assert reply.json() == {"session_id": "a", "interrupted": False}


async def test_verify_single_and_batch_in_order() -> None:
    """A batch answers in the order of its items."""
    right, wrong = {"gold": "1", "prediction": "= 1"}, {"gold": "2", "prediction": "3"}
    async with open_server() as served, served.client() as client:
        single = await client.post("/v1/verify", json=right)
        batch = await client.post("/v1/verify", json={"items": [wrong, right, wrong]})
        empty = await client.post("/v1/verify", json={"items": []})

    assert (single.json()["status"], single.json()["reward"]) == ("correct", 1.0)
    found = [verdict["status"] for verdict in batch.json()["verdicts"]]
    assert found == ["wrong", "correct", "wrong"]
    assert empty.json() == {"verdicts": []}


@pytest.mark.parametrize(
    ("error", "status", "code", "retry_after"),
    [
        (OverloadedError("full", 2.2), 503, "overloaded", "3"),
        (OverloadedError("full", 0.01), 503, "overloaded", "1"),
        (QueueTimeoutError(30), 503, "queue_timeout", "1"),
        (WorkerStartError("no"), 503, "worker_start_failed", "1"),
        (WorkerLostError("gone"), 500, "worker_lost", None),
        (ReleaseFailedError("alive"), 503, "release_failed", "1"),
        (ValueError("secret"), 500, "internal_error", None),
        (ExceptionGroup("g", [WorkerLostError("gone")]), 500, "worker_lost", None),
        (
            ExceptionGroup("g", [ValueError("secret"), WorkerLostError("gone")]),
            500,
            "internal_error",
            None,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_faults_are_problems(
    error: Exception, status: int, code: str, retry_after: str | None
) -> None:
    """Each fault of ours has its code; a defect tells nothing of itself."""

    async def fail(request: RunRequest, on_output: OnOutput | None) -> RunResult:
        await trio.lowlevel.checkpoint()
        raise error

    daemon = FakeDaemon(sessions=FakeSessions(fail))
    async with open_server(daemon) as served, served.client() as client:
        reply = await client.post("/v1/run", json={"code": "1"})

    problem = reply.json()
    assert reply.headers["content-type"] == "application/problem+json"
    assert (reply.status_code, problem["status"], problem["code"]) == (
        status,
        status,
        code,
    )
    assert set(problem) >= {"type", "title", "status", "detail", "code"}
    assert reply.headers.get("retry-after") == retry_after
    assert "secret" not in reply.text


async def test_every_response_carries_a_request_id() -> None:
    """The client's is echoed when fit; else each response gets its own."""
    async with open_server() as served, served.client() as client:
        ids = []
        for path in ("/livez", "/docs", "/nope", "/v1/sessions/none", "/livez"):
            echoed = await client.get(path, headers={"X-Request-Id": "mine-1"})
            assert echoed.headers["x-request-id"] == "mine-1"
            made = await client.get(path, headers={"X-Request-Id": "x" * 999})
            ids.append(made.headers["x-request-id"])
            if made.status_code != 200:
                assert made.json()["request_id"] == ids[-1]

    assert len(set(ids)) == len(ids)
    assert max(map(len, ids)) < 32


async def test_draining_refuses_work_and_keeps_the_rest() -> None:
    """Admitting routes answer 503; the process is alive and not ready."""
    daemon = FakeDaemon(is_draining=True)
    async with open_server(daemon) as served, served.client() as client:
        for path in ("/v1/sessions", "/v1/sessions/a/run", "/v1/run", "/v1/verify"):
            refused = await client.post(path, json={})
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            assert refused.headers["retry-after"] == "5"
        alive = await client.get("/livez")
        ready = await client.get("/readyz")
        health = await client.get("/healthz")

    assert alive.status_code == 200
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert health.status_code == 503
    assert health.json()["live"] is True
    assert "the daemon is draining" in health.json()["reasons"]


async def test_readyz_tells_the_reasons() -> None:
    """What the daemon lacks is in the body."""
    lacking = Readiness(ready=False, reasons=("pool science is FATAL",), tier="B")
    daemon = FakeDaemon(ready=lacking)
    async with open_server(daemon) as served, served.client() as client:
        reply = await client.get("/readyz")

    assert reply.status_code == 503
    assert reply.json() == {
        "ready": False,
        "reasons": ["pool science is FATAL"],
        "tier": "B",
    }


async def test_status_has_the_promised_shape() -> None:
    """`GET /v1/status` holds what clients and checks rely on."""
    async with open_server() as served, served.client() as client:
        status = (await client.get("/v1/status")).json()

    keys = {"version", "tier", "uptime_seconds", "draining", "pools", "sessions"}
    assert set(status) >= {*keys, "verify"}
    pool = status["pools"]["science"]
    assert set(pool) >= {"state", "engine", "ready", "busy", "starting", "restarts"}
    assert pool["workers"][0] == {
        "pid": 1,
        "state": "busy",
        "session_id": "a",
        "age_seconds": 1.5,
        "memory_bytes": 4096,
    }
    assert set(status["sessions"]) == {"live", "starting", "closing", "orphans", "runs"}
    assert set(status["verify"]) >= {"queue", "cache_hits", "cache_misses"}


async def test_metrics_count_by_route_template_and_status() -> None:
    """Labels come from our table, never from what a client wrote."""
    async with open_server() as served, served.client() as client:
        await client.get("/v1/sessions/one")
        await client.get("/v1/sessions/two")
        await client.get("/whatever")
        await client.request("BREW", "/livez")
        await client.post("/v1/run", json={"code": "1"})
        text = (await client.get("/metrics")).text

    lines = text.splitlines()
    route = 'method="GET",route="/v1/sessions/{session_id}",status="404"'
    assert f"qedtrio_http_requests_total{{{route}}} 2.0" in lines
    assert 'qedtrio_run_seconds_count{pool="science",status="ok"} 1.0' in lines
    assert 'qedtrio_workers{pool="science",state="ready"} 2.0' in lines
    assert 'qedtrio_worker_restarts_total{pool="science"} 3.0' in lines
    assert 'qedtrio_sessions{state="live"} 1.0' in lines
    assert "BREW" not in text
    assert "whatever" not in text


async def test_broken_text_from_a_worker_is_no_500() -> None:
    """A lone surrogate in a result is mended on its way out."""

    async def broken(request: RunRequest, on_output: OnOutput | None) -> RunResult:
        await trio.lowlevel.checkpoint()
        return RunResult(run_id="r", status=RunStatus.OK, stdout="a\ud800b")

    daemon = FakeDaemon(sessions=FakeSessions(broken))
    async with open_server(daemon) as served, served.client() as client:
        reply = await client.post("/v1/run", json={"code": "1"})

    assert reply.status_code == 200
    assert reply.json()["stdout"] == "a?b"
