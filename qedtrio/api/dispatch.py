"""From a matched route to its reply; the same below Quart and inside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from qedtrio.api.messages import Headers, Reply, Request
from qedtrio.api.problem import HttpError, problem_reply
from qedtrio.api.routing import Route
from qedtrio.api.services import Services
from qedtrio.errors import DrainingError

__all__ = ["Arrival", "answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request as it came off the wire, its body complete.

    Attributes:
        path: Values of the route's path parameters.
        body: Undecoded.
    """

    request_id: str
    path: Mapping[str, str]
    headers: Headers
    query_string: bytes
    body: bytes


async def answer(route: Route, services: Services, arrival: Arrival) -> Reply:
    """Decode, admit, handle; whatever goes wrong becomes a problem.

    Cancellation cancels the handler.
    """
    try:
        if route.admits and services.draining():
            raise DrainingError  # noqa: TRY301  # one place turns errors into replies
        if arrival.body and route.body is not None:
            check_content_type(arrival.headers)
        request = Request(
            request_id=arrival.request_id,
            path=arrival.path,
            headers=arrival.headers,
            body=route.read(arrival.body),
            query_string=arrival.query_string,
        )
        return await route.handler(services, request)
    except Exception as error:  # noqa: BLE001  # logged where it is no known error
        return problem_reply(error, arrival.request_id)


def check_content_type(headers: Headers) -> None:
    """Refuse a body that says it is no JSON; one that says nothing passes.

    Raises:
        HttpError: 415.
    """
    value = headers.get(b"content-type")
    if not value or value == "application/json":
        return
    kind, _, parameters = value.lower().partition(";")
    kind = kind.strip()
    is_json = kind == "application/json" or kind.endswith("+json")
    charset = parameters.replace(" ", "").replace('"', "").partition("charset=")[2]
    if not is_json or charset.partition(";")[0] not in {"", "utf-8", "utf8"}:
        raise HttpError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "the body must be application/json in UTF-8",
            field="Content-Type",
            headers=(("Accept", "application/json"),),
        )
