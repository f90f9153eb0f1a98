"""Malformed requests: each gets a 4xx problem that names the field."""

import json

import pytest

from qedtrio.config import Config, HttpConfig, Limits, VerifyConfig
from tests.api.harness import open_server, post, read_response, request
from tests.fakes import FakeDaemon

RUN = "/v1/run"
SESSIONS = "/v1/sessions"
VERIFY = "/v1/verify"

MALFORMED = [
    (RUN, b"", "$.code"),
    (RUN, b"nul", "$"),
    (RUN, b"[]", "$"),
    (RUN, b'{"code": "1"} x', "$"),
    (RUN, b'{"code": 1}', "$.code"),
    (RUN, b'{"code": null}', "$.code"),
    (RUN, b'{"code": "1", "speed": 1}', "$.speed"),
    (RUN, b'{"code": "\xff\xfe"}', "$.code"),
    (RUN, b'{"code": "\\ud800"}', "$.code"),
    (RUN, b'{"code": "1", "stdin": "\\udfff"}', "$.stdin"),
    (RUN, b'{"code": "1", "\xff": 1}', "$"),
    (RUN, b'{"code": "1", "deadline_seconds": -1}', "$.deadline_seconds"),
    (RUN, b'{"code": "1", "deadline_seconds": 0}', "$.deadline_seconds"),
    (RUN, b'{"code": "1", "deadline_seconds": 601}', "$.deadline_seconds"),
    (RUN, b'{"code": "1", "deadline_seconds": 1e400}', "$.deadline_seconds"),
    (RUN, b'{"code": "1", "deadline_seconds": NaN}', "$.deadline_seconds"),
    (RUN, b'{"code": "1", "deadline_seconds": -Infinity}', "$.deadline_seconds"),
    (RUN, b'{"code": "1", "deadline_seconds": true}', "$.deadline_seconds"),
    (RUN, b'{"code": "1", "deadline_seconds": "1"}', "$.deadline_seconds"),
    (RUN, b'{"code": "1", "seed": 1.5}', "$.seed"),
    (RUN, b'{"code": "1", "seed": -1}', "$.seed"),
    (RUN, b'{"code": "1", "seed": 1' + b"0" * 5000 + b"}", "$.seed"),
    (RUN, b'{"code": "1", "pool": "../x"}', "$.pool"),
    (RUN, b'{"code": "1", "limits": {"memory_bytes": 1}}', "$.limits.memory_bytes"),
    (RUN, b'{"code": "1", "limits": {"sessions": 1}}', "$.limits.sessions"),
    (RUN, b'{"code": "1", "files": {"../x": ""}}', "$.files['../x']"),
    (RUN, b'{"code": "1", "files": {"/x": ""}}', "$.files['/x']"),
    (RUN, b'{"code": "1", "files": {"a//x": ""}}', "$.files['a//x']"),
    (RUN, b'{"code": "1", "files": {"a\\u0000": ""}}', "$.files['a\\x00']"),
    (RUN, b'{"code": "1", "files": {"a": 1}}', "$.files[...]"),
    (RUN, b'{"code": ' + b"[" * 100_000, "$.code"),
    (RUN, b'{"stdin": ' + b'{"a":' * 100_000, "$.stdin"),
    (SESSIONS, b'{"session_id": "a/b"}', "$.session_id"),
    (SESSIONS, b'{"session_id": ".."}', "$.session_id"),
    (SESSIONS, b'{"session_id": ""}', "$.session_id"),
    (SESSIONS, b'{"session_id": "' + b"a" * 129 + b'"}', "$.session_id"),
    (SESSIONS, b'{"idle_seconds": 0}', "$.idle_seconds"),
    (SESSIONS, b'{"lifetime_seconds": 1e99}', "$.lifetime_seconds"),
    (SESSIONS, b'{"limits": []}', "$.limits"),
    (SESSIONS + "/a/interrupt", b'{"hard": true}', "$.hard"),
    (VERIFY, b"{}", "$.gold"),
    (VERIFY, b'{"gold": "1"}', "$.prediction"),
    (VERIFY, b'{"gold": "1", "items": []}', "$.gold"),
    (VERIFY, b'{"items": [{"gold": "1"}]}', "$.items[0].prediction"),
    (VERIFY, b'{"items": {"gold": "1"}}', "$.items"),
    (
        VERIFY,
        b'{"gold": "1", "prediction": "1", "options": {"deadline_seconds": 6}}',
        "$.options.deadline_seconds",
    ),
    (
        VERIFY,
        b'{"items": [{"gold": "1", "prediction": "\\udc00"}]}',
        "$.items[0].prediction",
    ),
]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    MALFORMED,
    ids=[f"{number}-{case[2][:40]}" for number, case in enumerate(MALFORMED)],
)
async def test_malformed_body_names_the_field(
    path: str, body: bytes, field: str
) -> None:
    """400 with the field, and the connection goes on."""
    async with open_server() as served, await served.connect() as stream:
        kind = "content-type: application/json"
        await stream.send_all(request("POST", path, body, kind))
        status, problem = await read_response(stream)
        await stream.send_all(post("/bench/echo", {"text": "still here"}))
        again, echo = await read_response(stream)

    assert (status, problem.get("field")) == (400, field), problem
    assert problem["code"] == "invalid_request"
    assert (again, echo) == (200, {"text": "still here"})


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=UTF-8", 200),
        ("application/vnd.x+json", 200),
        ("", 200),
        ("text/plain", 415),
        ("application/json; charset=latin-1", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
    ],
)
async def test_content_type_is_checked(kind: str, status: int) -> None:
    """A body that says it is no JSON is refused, a silent one is read."""
    async with open_server() as served, served.client() as client:
        headers = {"content-type": kind} if kind else {}
        reply = await client.post(RUN, content=b'{"code": "1"}', headers=headers)

    assert reply.status_code == status


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/nothing", 404, None),
        ("POST", "/v1/sessions/", 404, None),
        ("GET", "//v1//sessions", 404, None),
        ("GET", "/v1/sessions/a/files/../../../../etc/passwd", 404, None),
        ("GET", "/v1/sessions/%2e%2e", 404, None),
        ("GET", "/v1/sessions/a%2Fb", 404, None),
        ("GET", "/v1/sessions/%ff%00", 404, None),
        ("GET", "/v1/run", 405, "OPTIONS, POST"),
        ("PUT", "/v1/sessions", 405, "GET, HEAD, OPTIONS, POST"),
        ("PATCH", "/livez", 405, "GET, HEAD, OPTIONS"),
        ("BREW", "/livez", 405, "GET, HEAD, OPTIONS"),
    ],
)
async def test_unknown_routes_and_methods(
    method: str, path: str, status: int, allow: str | None
) -> None:
    """404, or 405 with Allow; never a redirect and never a page."""
    async with open_server() as served:
        reply = await served.ask(request(method, path, b"", "connection: close"))

    head, _, body = reply.partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert json.loads(body)["status"] == status
    allowed = head.lower().partition(b"allow: ")[2].partition(b"\r\n")[0]
    assert allowed.decode().upper() == (allow or "")


async def test_body_over_the_cap_is_refused_however_it_comes() -> None:
    """413 for a declared length and for chunks; the daemon reads no more."""
    http = HttpConfig(body_bytes=1024)
    daemon = FakeDaemon(config=Config(http=http))
    chunk = b"400\r\n" + b"a" * 1024 + b"\r\n"
    head = b"POST /v1/run HTTP/1.1\r\nhost: x\r\n"
    async with open_server(daemon) as served:
        declared = await served.ask(
            head + b"content-length: 50000000\r\n\r\n", b"a" * 64
        )
        chunked = await served.ask(
            head + b"transfer-encoding: chunked\r\n\r\n", chunk, chunk
        )

    for reply in (declared, chunked):
        assert reply.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"body_too_large"' in reply


async def test_stock_client_with_a_huge_body_sees_the_413() -> None:
    """The answer survives although 50 MB were never read."""
    async with open_server() as served, served.client() as client:
        reply = await client.post(RUN, content=b"a" * 50_000_000)

    assert reply.status_code == 413


async def test_slow_body_is_given_up() -> None:
    """408 after `body_seconds`, and the connection ends."""
    daemon = FakeDaemon(config=Config(http=HttpConfig(body_seconds=0.1)))
    async with open_server(daemon) as served:
        head = b"POST /v1/run HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{"
        reply = await served.ask(head)

    assert reply.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body_timeout"' in reply


async def test_configured_sizes_are_413() -> None:
    """Code and batches beyond the configuration name their field."""
    config = Config(limits=Limits(code_bytes=4), verify=VerifyConfig(batch_items=1))
    item = {"gold": "1", "prediction": "1"}
    daemon = FakeDaemon(config=config)
    async with open_server(daemon) as served, served.client() as client:
        code = await client.post(RUN, json={"code": "ééé"})
        fits = await client.post(RUN, json={"code": "éé"})
        batch = await client.post(VERIFY, json={"items": [item, item]})

    assert (code.status_code, code.json()["field"]) == (413, "$.code")
    assert fits.status_code == 200
    assert (batch.status_code, batch.json()["field"]) == (413, "$.items")
