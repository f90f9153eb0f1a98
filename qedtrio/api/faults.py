"""Telling a client's mistakes from our defects, and both from cancellation."""

import h11
from wsproto.utilities import ProtocolError as WebSocketError

__all__ = ["is_hostile", "split"]

HOSTILE = (h11.ProtocolError, WebSocketError)
"""Errors that a client's bytes cause: one line in the log, no traceback."""


def split(
    error: BaseException, *kinds: type[BaseException]
) -> tuple[BaseException | None, BaseException | None]:
    """Part `error` into what is of `kinds` and what is not."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)
    return (error, None) if isinstance(error, kinds) else (None, error)


def is_hostile(error: BaseException) -> bool:
    """Whether nothing but a client's bytes caused `error`."""
    return split(error, *HOSTILE)[1] is None
