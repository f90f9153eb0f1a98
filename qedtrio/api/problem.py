"""Errors as `application/problem+json` (RFC 9457)."""

import logging
import math
from collections.abc import Iterator
from http import HTTPStatus

import msgspec

from qedtrio.api.codec import encode
from qedtrio.api.messages import Reply
from qedtrio.errors import QedtrioError, RequestError

__all__ = ["PROBLEM_JSON", "HttpError", "Problem", "describe", "problem_reply"]

PROBLEM_JSON = "application/problem+json"

log = logging.getLogger(__name__)


class HttpError(QedtrioError):
    """The request was refused before or beside any handler.

    Attributes:
        field: Path of the offending field; None where no field is to blame.
        headers: To be sent with the answer, such as `Allow`.
    """

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.field = field
        self.headers = headers


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, for programs (`code`) and for people (`detail`)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    request_id: str | None = None


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside nested groups, in order."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def known_error(error: Exception) -> QedtrioError | None:
    """The one error of ours that `error` is or wraps, None for surprises."""
    found = list(leaves(error))
    ours = [leaf for leaf in found if isinstance(leaf, QedtrioError)]
    return ours[0] if len(ours) == len(found) else None


def describe(error: Exception, request_id: str | None = None) -> Problem:
    """Say what `error` means to a client; log it when it is our defect."""
    ours = known_error(error)
    if ours is None:
        log.error(
            "A request failed by a defect of the daemon request_id=%s",
            request_id,
            exc_info=error,
        )
        ours = QedtrioError("the daemon failed; its log has the details")
    return Problem(
        type=f"urn:qedtrio:problem:{ours.code}",
        title=ours.code.replace("_", " ").capitalize(),
        status=int(ours.status),
        detail=str(ours),
        code=ours.code,
        field=ours.field if isinstance(ours, RequestError | HttpError) else None,
        request_id=request_id,
    )


def problem_reply(error: Exception, request_id: str | None = None) -> Reply:
    """Answer `error`, with `Retry-After` where trying again may help."""
    problem = describe(error, request_id)
    return Reply(
        status=problem.status,
        body=encode(problem),
        content_type=PROBLEM_JSON,
        headers=tuple(_headers(error)),
    )


def _headers(error: Exception) -> Iterator[tuple[str, str]]:
    """Headers that belong to the error."""
    ours = known_error(error)
    if isinstance(ours, HttpError):
        yield from ours.headers
    if ours is not None and ours.retry_after_seconds is not None:
        yield "Retry-After", str(max(1, math.ceil(ours.retry_after_seconds)))
