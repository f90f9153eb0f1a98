"""The ASGI callable in front of Quart.

Theory of operation. A request passes here once its head has arrived. Its
target is brought into one form, its body read whole, within limits of size
and time, and its id settled. Then a hot route's handler is called at once;
everything else goes to the Quart application, which holds every route of the
same table, with the body ready and a `send` that stamps the request id. A
client that goes away cancels the task this runs in (see `exchange`), so
neither side watches for it.
"""

from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import trio
from hypercorn.typing import ConnectionState

from qedtrio.api.dispatch import Arrival, answer
from qedtrio.api.intake import RequestIds, read_body, target_path
from qedtrio.api.messages import Headers
from qedtrio.api.problem import problem_reply
from qedtrio.api.response import Replay, Response
from qedtrio.api.routing import Match, RouteTable
from qedtrio.api.services import Services
from qedtrio.errors import QedtrioError

if TYPE_CHECKING:
    from hypercorn.typing import (
        ASGIFramework,
        ASGIReceiveCallable,
        ASGISendCallable,
        HTTPScope,
        Scope,
        WebsocketScope,
    )

__all__ = ["REQUEST_ID", "Front"]

REQUEST_ID = "qedtrio.request_id"
"""Key of the scope under which the application finds the request's id."""

GONE = 499
"""Counted, never sent: the client went away before its answer."""


class Front:
    """Serves hot routes itself and leaves the rest to `fallback`.

    Args:
        table: Every route of this listener.
        services: What the handlers need.
        fallback: Serves the same table, and whatever is in none.
    """

    def __init__(
        self, table: RouteTable, services: Services, fallback: "ASGIFramework"
    ) -> None:
        self._table = table
        self._services = services
        self._fallback = fallback
        self._ids = RequestIds()

    async def __call__(
        self, scope: "Scope", receive: "ASGIReceiveCallable", send: "ASGISendCallable"
    ) -> None:
        """Serve one request, or hand a WebSocket on."""
        assert scope["type"] != "lifespan", "the server speaks no lifespan"
        headers = Headers.of(scope["headers"])
        response = Response(send, self._ids.of(headers))
        if scope["type"] == "websocket":
            await self._fallback(_identified(scope, response), receive, response.send)
            return
        started = trio.current_time()
        label = "unread"
        try:
            label = await self._serve(scope, headers, receive, response)
        finally:
            seconds = trio.current_time() - started
            self._services.metrics.observe_request(
                scope["method"], label, response.status or GONE, seconds
            )

    async def _serve(
        self,
        scope: "HTTPScope",
        headers: Headers,
        receive: "ASGIReceiveCallable",
        response: Response,
    ) -> str:
        """Answer; returns the route's template."""
        try:
            path = target_path(scope)
            body = await read_body(receive, headers, self._services.config.http)
        except QedtrioError as error:
            await response.send_reply(problem_reply(error, response.request_id))
            return "refused"
        found = self._table.match(scope["method"], path)
        if found is not None and found.route.is_hot:
            await self._serve_hot(found, scope, headers, body, response)
        else:
            await self._fall_back(scope, path, body, response)
        return "other" if found is None else found.route.path

    async def _serve_hot(
        self,
        found: Match,
        scope: "HTTPScope",
        headers: Headers,
        body: bytes,
        response: Response,
    ) -> None:
        """Call the handler with nothing between."""
        arrival = Arrival(
            request_id=response.request_id,
            path=found.parameters,
            headers=headers,
            query_string=scope["query_string"],
            body=body,
        )
        reply = await answer(found.route, self._services, arrival)
        await response.send_reply(reply)

    async def _fall_back(
        self, scope: "HTTPScope", path: bytes, body: bytes, response: Response
    ) -> None:
        """Let the Quart application answer."""
        inner = _identified(scope, response)
        inner["raw_path"] = path
        if not scope["path"].startswith("/"):
            inner["path"] = urlsplit(scope["path"]).path or "/"
        await self._fallback(inner, Replay(body), response.send)


S = TypeVar("S", "HTTPScope", "WebsocketScope")


def _identified(scope: S, response: Response) -> S:
    """A copy of `scope` under which the application finds the request's id."""
    inner = scope.copy()
    state = {**scope["state"], REQUEST_ID: response.request_id}
    inner["state"] = ConnectionState(state)
    return inner
