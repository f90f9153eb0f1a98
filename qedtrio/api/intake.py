"""What must be settled before a request reaches a handler."""

import secrets
from collections.abc import Iterator
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import trio

from qedtrio.api.messages import Headers
from qedtrio.api.problem import HttpError
from qedtrio.config import HttpConfig

if TYPE_CHECKING:
    from hypercorn.typing import ASGIReceiveCallable, HTTPScope

__all__ = ["RequestIds", "read_body", "target_path"]

MAX_REQUEST_ID_CHARS = 128


class RequestIds:
    """Gives each request its id."""

    def __init__(self) -> None:
        prefix = secrets.token_hex(6)  # unlike any other daemon's
        self._fresh: Iterator[str] = (f"{prefix}-{n:x}" for n in count(1))

    def of(self, headers: Headers) -> str:
        """The client's id where it is fit to be echoed, else a fresh one."""
        given = headers.get(b"x-request-id")
        if given and len(given) <= MAX_REQUEST_ID_CHARS and _is_visible(given):
            return given
        return next(self._fresh)


def _is_visible(text: str) -> bool:
    """Whether `text` is all visible ASCII, safe in headers and logs."""
    return text.isascii() and text.isprintable() and " " not in text


def target_path(scope: "HTTPScope") -> bytes:
    """The raw path of the request's target.

    Raises:
        HttpError: The target is neither a path nor a URL with one.
    """
    raw = scope["raw_path"]
    if raw.startswith(b"/") or (raw == b"*" and scope["method"] == "OPTIONS"):
        return raw
    try:
        url = urlsplit(raw.decode("ascii"))
    except ValueError:
        url = None
    if url is None or url.scheme not in {"http", "https"} or not url.netloc:
        raise HttpError(
            HTTPStatus.BAD_REQUEST, "invalid_target", "the target is no path or URL"
        )
    return url.path.encode() or b"/"


async def read_body(
    receive: "ASGIReceiveCallable", headers: Headers, limits: HttpConfig
) -> bytes:
    """Read a request's body whole.

    Args:
        receive: The server's.
        headers: Of the request; a declared length is judged before reading.
        limits: `body_bytes` and `body_seconds` hold, chunked or not.

    Raises:
        HttpError: 413 or 408. The rest of the body is still on the wire, so
            the server closes the connection after the answer.
    """
    declared = headers.get(b"content-length")
    if declared is not None and int(declared) > limits.body_bytes:
        raise _too_large(limits)
    parts: list[bytes] = []
    size = 0
    with trio.CancelScope(deadline=trio.current_time() + limits.body_seconds):
        while True:
            message = await receive()
            assert message["type"] == "http.request", "the server cancels instead"
            parts.append(message["body"])
            size += len(message["body"])
            if size > limits.body_bytes:
                raise _too_large(limits)
            if not message["more_body"]:
                return b"".join(parts)
    raise HttpError(
        HTTPStatus.REQUEST_TIMEOUT,
        "body_timeout",
        f"the body did not arrive within {limits.body_seconds:g} s",
    )


def _too_large(limits: HttpConfig) -> HttpError:
    """The body is over the cap."""
    return HttpError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body_too_large",
        f"at most {limits.body_bytes} bytes are accepted",
    )
