"""A request and its reply, the same whichever way the handler was reached."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import parse_qs

from qedtrio.api.codec import encode

__all__ = ["JSON", "NDJSON", "Headers", "Lines", "Reply", "Request"]

JSON = "application/json"
NDJSON = "application/x-ndjson"

Lines = Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""Opens the lines of a stream.

The first line may raise instead: nothing was sent yet, so the error still
becomes a status. Later errors are lines.
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Headers:
    """Header fields as they arrived: lower-case names, in order."""

    items: Sequence[tuple[bytes, bytes]]

    def get(self, name: bytes) -> str | None:
        """First value of `name` (lower case), or None."""
        for key, value in self.items:
            if key == name:
                return value.decode("latin-1").strip()
        return None

    def accepts(self, media_type: str) -> bool:
        """Whether the client asked for `media_type` by its name."""
        ranges = (self.get(b"accept") or "").lower().split(",")
        return any(item.partition(";")[0].strip() == media_type for item in ranges)

    @staticmethod
    def of(pairs: Iterable[tuple[bytes, bytes]]) -> "Headers":
        """Wrap the pairs of an ASGI scope."""
        return Headers(pairs if isinstance(pairs, list) else list(pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a handler is given.

    Attributes:
        request_id: The client's `X-Request-Id`, or a fresh one.
        path: Values of the route's path parameters.
        headers: As they arrived.
        body: Decoded and checked by the route's request type; None for
            routes that take no body.
        query_string: Undecoded.
    """

    request_id: str
    path: Mapping[str, str]
    headers: Headers
    body: object = None
    query_string: bytes = b""

    def body_as(self, kind: type[T]) -> T:
        """The body as the type that the route declares."""
        assert isinstance(self.body, kind), f"the route declares no {kind.__name__}"
        return self.body

    def query(self, name: str) -> str | None:
        """Last value of a query parameter, or None."""
        values = parse_qs(self.query_string.decode("latin-1")).get(name)
        return values[-1] if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a handler answers: bytes, or a stream of lines.

    Attributes:
        headers: Besides content type and length.
        lines: When set, the body is this stream, and `body` is ignored.
    """

    status: int = HTTPStatus.OK
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    lines: Lines | None = field(default=None, repr=False)

    @staticmethod
    def of(value: object, status: int = HTTPStatus.OK) -> "Reply":
        """Answer `value` as JSON."""
        return Reply(status=status, body=encode(value))

    @staticmethod
    def stream(lines: Lines) -> "Reply":
        """Answer newline-delimited JSON as it is produced."""
        return Reply(content_type=NDJSON, lines=lines)
