"""The Quart-Trio application: every route of the table, at Quart's pace.

The front serves the hot ones before they get here. What reaches this
application are the others, HEAD and OPTIONS, and everything that is no route.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING

from quart import Response, has_request_context, request, websocket
from quart.wrappers.response import ResponseBody
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from qedtrio.api.dispatch import Arrival, answer
from qedtrio.api.front import REQUEST_ID, Front
from qedtrio.api.messages import Headers, Lines, Reply
from qedtrio.api.problem import HttpError, problem_reply
from qedtrio.api.routes import native_table
from qedtrio.api.routing import Route, RouteTable
from qedtrio.api.services import Services

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

__all__ = ["build_app", "build_front"]


def build_front(services: Services) -> Front:
    """The native API, ready to be served."""
    table = native_table(bench_echo=services.bench_echo)
    return Front(table, services, build_app(table, services))


def build_app(table: RouteTable, services: Services) -> QuartTrio:
    """A Quart application that answers every route of `table`."""
    app = QuartTrio("qedtrio", static_folder=None)
    # The front has read the body within its own limits; how long a client may
    # take to read a response is the connection's business.
    app.config.update(MAX_CONTENT_LENGTH=None, BODY_TIMEOUT=None, RESPONSE_TIMEOUT=None)
    app.url_map.merge_slashes = False  # a redirect would lose a POST's body
    for route in table:
        app.add_url_rule(
            route.path.replace("{", "<").replace("}", ">"),
            endpoint=f"{route.method} {route.path}",
            view_func=_view(route, services),
            methods=[route.method],
        )
    app.register_error_handler(HTTPException, _refuse)
    app.register_error_handler(Exception, _fail)
    return app


def _view(route: Route, services: Services) -> Callable[..., Awaitable[Response]]:
    """Wrap a route's handler as a Quart view."""

    async def view(**parameters: str) -> Response:
        scope = request.scope
        body = await request.get_data(as_text=False)
        assert isinstance(body, bytes), "it was not asked for as text"
        arrival = Arrival(
            request_id=_request_id(),
            path=parameters,
            headers=Headers.of(scope["headers"]),
            query_string=scope["query_string"],
            body=body,
        )
        return _response(await answer(route, services, arrival))

    return view


async def _refuse(error: HTTPException) -> Response:  # noqa: ASYNC124  # as all handlers
    """Answer what Quart itself refuses: unknown routes, wrong methods."""
    status = HTTPStatus(error.code or HTTPStatus.INTERNAL_SERVER_ERROR)
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, MethodNotAllowed):
        headers = (("Allow", ", ".join(sorted(error.valid_methods or ()))),)
    codes = {HTTPStatus.NOT_FOUND: "route_not_found"}
    code = codes.get(status, status.name.lower())
    detail = "the method is not answered here"
    if status == HTTPStatus.NOT_FOUND:
        detail = "no such route; GET /docs lists them"
    refusal = HttpError(status, code, detail, headers=headers)
    return _response(problem_reply(refusal, _request_id()))


async def _fail(error: Exception) -> Response:  # noqa: ASYNC124  # as all handlers
    """Answer a defect of ours."""
    return _response(problem_reply(error, _request_id()))


def _request_id() -> str:
    """The current request's id, as the front settled it."""
    scope = request.scope if has_request_context() else websocket.scope
    return str(scope["state"].get(REQUEST_ID, ""))


def _response(reply: Reply) -> Response:
    """A reply as Quart's own.

    The status of a stream goes out before its first line is known here, so
    an error before any line ends the stream early instead.
    """
    made = Response(
        reply.body if reply.lines is None else LinesBody(reply.lines),
        status=reply.status,
        content_type=reply.content_type,
    )
    for name, value in reply.headers:
        made.headers[name] = value
    return made


class LinesBody(ResponseBody):
    """A stream as the body of a Quart response."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "AsyncIterable[bytes]":
        return await self._stack.enter_async_context(self._lines())

    async def __aexit__(
        self, exc_type: type, exc_value: BaseException, tb: TracebackType
    ) -> None:
        await self._stack.__aexit__(exc_type, exc_value, tb)  # noqa: ASYNC102  # bounds itself
