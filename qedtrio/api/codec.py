"""JSON in and out: strict when reading, unbreakable when writing."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec

from qedtrio.errors import RequestError

__all__ = ["decode", "encode", "encode_event"]

DIAGNOSED_BYTES = 1 << 20
"""Malformed bodies up to this size are read a second time, to name the field."""

T = TypeVar("T")

_AT = re.compile(r"^(.*?)(?: - at `(.*)`)?$", re.DOTALL)
_MISSING_OR_UNKNOWN = re.compile(
    r"^Object (missing required|contains unknown) field `(.*)`$", re.DOTALL
)


def _plain(value: object) -> object:
    """Make read-only mappings what the encoder knows."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"cannot encode {type(value).__name__}")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: object) -> bytes:
    """Encode any reply as JSON.

    A string that is no valid Unicode, which only a defect of ours could let
    through, is mended rather than turned into an error.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=_plain)
        return _ENCODER.encode(_mended(plain))


def encode_event(event: str, value: object) -> bytes:
    """One line of a stream: the keys of `value` after an `event` key."""
    return b'{"event":"%s",%s\n' % (event.encode(), encode(value)[1:])


def _mended(value: object) -> object:
    """`value` with each lone surrogate replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Read a body, or say which field is wrong.

    Raises:
        RequestError: Not JSON, not Unicode, or not of the decoder's type.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise RequestError(*_located(str(error))) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(*_diagnosed(body, str(error))) from error


def _located(message: str) -> tuple[str, str]:
    """Split what the decoder says into the field and the problem."""
    found = _AT.match(message)
    assert found is not None, "the expression matches every text"
    problem, field = found[1], found[2] or "$"
    named = _MISSING_OR_UNKNOWN.match(problem)
    if named is None:
        return field, problem[:1].lower() + problem[1:]
    known = "is required" if named[1].startswith("missing") else "unknown key"
    return f"{field}.{named[2]}", known


def _diagnosed(body: bytes, message: str) -> tuple[str, str]:
    """Find the field that makes a body no JSON, as far as one can be named."""
    if len(body) > DIAGNOSED_BYTES:
        return "$", message
    try:
        value = json.loads(body.decode("utf-8", "surrogateescape"))
        for field, problem in _defects(value, "$"):
            return field, problem
    except RecursionError:
        return "$", "is nested too deeply"
    except ValueError:
        pass  # truly no JSON: the decoder's own words are best
    return "$", message


def _defects(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Fields that Python's lenient reader takes and JSON forbids."""
    if isinstance(value, str) and not _is_unicode(value):
        yield path, "is not valid Unicode"
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, "must be a finite number"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _defects(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not _is_unicode(key):
                yield path, "has a key that is not valid Unicode"
            yield from _defects(item, f"{path}.{key}")


def _is_unicode(text: str) -> bool:
    """Whether `text` has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
