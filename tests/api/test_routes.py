"""The one table: complete, described, and the same on both ways."""

import pytest

from qedtrio.api.app import build_app
from qedtrio.api.front import Front
from qedtrio.api.openapi import describe_routes, render_page
from qedtrio.api.routes import native_table
from qedtrio.api.routing import RouteTable
from tests.api.harness import open_server
from tests.fakes import FakeDaemon

PROMISED = {
    "POST /v1/sessions",
    "GET /v1/sessions",
    "GET /v1/sessions/{session_id}",
    "DELETE /v1/sessions/{session_id}",
    "POST /v1/sessions/{session_id}/run",
    "POST /v1/sessions/{session_id}/interrupt",
    "POST /v1/run",
    "POST /v1/verify",
    "GET /livez",
    "GET /readyz",
    "GET /healthz",
    "GET /metrics",
    "GET /v1/status",
    "GET /openapi.json",
    "GET /docs",
}


def test_table_holds_what_is_promised_and_nothing_twice() -> None:
    """Benchmarks' echo is not part of the API."""
    found = [f"{route.method} {route.path}" for route in native_table()]

    assert sorted(found) == sorted(PROMISED)


def test_every_handler_and_body_is_documented() -> None:
    """The description is made of these sentences."""
    for route in native_table():
        assert route.handler.__doc__, route.path
        assert route.summary.endswith("."), route.path
        assert route.body is None or route.body.__doc__, route.path


async def test_description_lists_every_route() -> None:
    """OpenAPI and the page both, with the types they refer to."""
    async with open_server() as served, served.client() as client:
        document = (await client.get("/openapi.json")).json()
        page = (await client.get("/docs")).text

    listed = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert listed >= PROMISED
    assert {"RunBody", "RunResult", "Verdict", "Problem", "LimitsBody"} <= set(
        document["components"]["schemas"]
    )
    assert all(f"<code>{route}</code>" in page for route in PROMISED)
    assert "src=" not in page


def test_references_of_the_description_resolve() -> None:
    """Each `$ref` points at a component."""
    document = describe_routes(native_table())
    text = repr(document)
    for name in text.split("#/components/schemas/")[1:]:
        assert repr(name.partition("'")[0]) in text
    assert "RunBody" in text
    assert "</table>" in render_page(native_table())


@pytest.mark.parametrize("is_direct", [False, True], ids=["front", "quart"])
async def test_quart_alone_answers_every_route_alike(*, is_direct: bool) -> None:
    """The hot dispatcher is a short cut, not another API."""
    daemon = FakeDaemon()
    services = daemon.services()
    table = native_table()
    inner = build_app(table, services)
    front = Front(RouteTable([]) if is_direct else table, services, inner)
    async with open_server(daemon, app=front) as served, served.client() as client:
        made = await client.post("/v1/sessions", json={"session_id": "a"})
        run = await client.post("/v1/sessions/a/run", json={"code": "1"})
        wrong = await client.post("/v1/sessions/a/run", json={"code": 1})
        lines = await client.post(
            "/v1/run", json={"code": "1"}, headers={"accept": "application/x-ndjson"}
        )
        closed = await client.delete("/v1/sessions/a")
        odd = await client.get("/v1/sessions/%2e%2e")
        live = await client.get("/livez", headers={"x-request-id": "mine"})

    assert [made.status_code, run.status_code, wrong.status_code] == [201, 200, 400]
    assert wrong.json()["field"] == "$.code"
    assert lines.text.startswith('{"event":"stdout",')
    assert (closed.json()["outcome"], odd.status_code) == ("closed", 404)
    assert live.headers["x-request-id"] == "mine"


def test_match_keeps_encoded_slashes_in_their_segment() -> None:
    """A path trick cannot change which route is meant."""
    table = native_table()
    found = table.match("GET", b"/v1/sessions/a%2Frun")

    assert found is not None
    assert found.parameters == {"session_id": "a/run"}
    assert table.match("POST", b"/v1/sessions/a%2Frun") is None
    assert table.match("GET", b"/v1//sessions") is None
    assert table.match("GET", b"") is None
