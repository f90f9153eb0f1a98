"""The API described from its table of routes: OpenAPI and a page for people."""

import html
from collections.abc import Iterable

import msgspec

import qedtrio
from qedtrio.api.messages import JSON, NDJSON, Reply, Request
from qedtrio.api.problem import PROBLEM_JSON, Problem
from qedtrio.api.routing import Route
from qedtrio.api.services import Services

__all__ = ["describe_routes", "documentation_routes", "render_page"]

REFERENCE = "#/components/schemas/{name}"


def documentation_routes(routes: Iterable[Route]) -> tuple[Route, ...]:
    """The two routes that describe `routes` and themselves."""
    described: list[Route] = list(routes)

    async def openapi(_services: Services, _request: Request) -> Reply:  # noqa: ASYNC124  # as all handlers
        """Describe the API for programs."""
        return Reply.of(describe_routes(described))

    async def docs(_services: Services, _request: Request) -> Reply:  # noqa: ASYNC124  # as all handlers
        """Describe the API for people."""
        page = render_page(described).encode()
        return Reply(body=page, content_type="text/html; charset=utf-8")

    own = (
        Route(
            method="GET",
            path="/openapi.json",
            handler=openapi,
            summary="This API as OpenAPI 3.1.",
            replies=(dict,),
        ),
        Route(method="GET", path="/docs", handler=docs, summary="This API as a page."),
    )
    described.extend(own)
    return own


def describe_routes(routes: Iterable[Route]) -> dict[str, object]:
    """The OpenAPI document."""
    routes = list(routes)
    used = [kind for route in routes for kind in (route.body, *route.replies)]
    types = {_key(kind): kind for kind in (Problem, *used) if kind is not None}
    shapes, components = msgspec.json.schema_components(
        list(types.values()), ref_template=REFERENCE
    )
    schemas = dict(zip(types, shapes, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, schemas
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "qedtrio",
            "version": qedtrio.__version__,
            "description": (qedtrio.__doc__ or "").partition("\n")[0],
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _key(kind: object) -> str:
    """A name for a type that need not be hashable."""
    return repr(kind)


def _operation(
    route: Route, schemas: dict[str, dict[str, object]]
) -> dict[str, object]:
    """One method of one path."""
    operation: dict[str, object] = {
        "summary": route.summary,
        "description": (route.handler.__doc__ or "").strip(),
        "operationId": route.handler.__name__,
        "responses": _responses(route, schemas),
    }
    if route.parameters:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in route.parameters
        ]
    if route.body is not None:
        content = {JSON: {"schema": schemas[_key(route.body)]}}
        operation["requestBody"] = {"content": content}
    return operation


def _responses(
    route: Route, schemas: dict[str, dict[str, object]]
) -> dict[str, object]:
    """The success, and every problem in one entry."""
    content: dict[str, object] = {}
    shapes = [schemas[_key(kind)] for kind in route.replies]
    if shapes:
        content[JSON] = {"schema": shapes[0] if len(shapes) == 1 else {"anyOf": shapes}}
    if route.streams:
        content[NDJSON] = {"schema": {"type": "string"}}
    codes = ", ".join((*route.errors, "invalid_request"))
    return {
        str(route.status): {"description": route.summary, "content": content},
        "default": {
            "description": f"A problem; `code` is one of {codes}, or a general one.",
            "content": {PROBLEM_JSON: {"schema": schemas[_key(Problem)]}},
        },
    }


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>qedtrio API</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }}
code {{ font-family: ui-monospace, monospace; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; }}
tr {{ border-top: 1px solid #ccc; }}
</style>
<h1>qedtrio {version}</h1>
<p>The same as <a href="openapi.json">OpenAPI</a>. Errors are
<code>{problem}</code>; every response carries <code>X-Request-Id</code>.</p>
<table><tr><th>Route<th>Body<th>What it does<th>Problems</tr>
{rows}
</table></html>
"""


def render_page(routes: Iterable[Route]) -> str:
    """The page: one row a route, nothing loaded from elsewhere."""
    return PAGE.format(
        version=html.escape(qedtrio.__version__),
        problem=PROBLEM_JSON,
        rows="\n".join(_row(route) for route in routes),
    )


def _row(route: Route) -> str:
    """One route as a table row."""
    keys = route.body.__struct_fields__ if route.body is not None else ()
    cells = (
        f"<code>{html.escape(f'{route.method} {route.path}')}</code>",
        html.escape(", ".join(keys)),
        html.escape(route.summary),
        html.escape(", ".join(route.errors)),
    )
    return "<tr>" + "".join(f"<td>{cell}" for cell in cells) + "</tr>"
