"""Messages between the daemon and a worker: length-prefixed JSON, sans I/O.

Shared by both sides; this module does no I/O and imports next to nothing. The
frame is a four-byte big-endian length and that many bytes of JSON. File
descriptors, where a message carries some, travel with its first byte.
"""

import json
import struct

__all__ = [
    "HEADER_BYTES",
    "MESSAGE_BYTES",
    "REPLY_BYTES",
    "Message",
    "ProtocolError",
    "body_size",
    "decode",
    "frame",
    "reply_size",
]

Message = dict[str, object]

HEADER_BYTES = 4
MESSAGE_BYTES = 80 * 1024 * 1024
"""Longest message to a worker: code and files at their largest, escaped."""

REPLY_BYTES = 256 * 1024
"""Longest reply but for a run's result: what it raised, escaped, and some room.

Whoever finds the channel in a worker could otherwise fill the daemon's memory."""

ESCAPE = 6
"""JSON says a byte in at most so many."""


class ProtocolError(Exception):
    """The other side sent something that is no message."""


def frame(message: Message) -> bytes:
    """Encode one message with its header."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return struct.pack(">I", len(body)) + body


def reply_size(result_bytes: int) -> int:
    """Length of the longest reply whose result has at most `result_bytes`."""
    return REPLY_BYTES + ESCAPE * result_bytes


def body_size(header: bytes | bytearray | memoryview, most: int = MESSAGE_BYTES) -> int:
    """Read the length of the body from a header.

    Raises:
        ProtocolError: It is above `most`.
    """
    size: int = struct.unpack_from(">I", header)[0]
    if size > most:
        raise ProtocolError(f"a message of {size} bytes")
    return size


def decode(body: bytes | bytearray) -> Message:
    """Decode one body.

    Raises:
        ProtocolError: It is not a JSON object.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON") from error
    if not isinstance(message, dict):
        raise ProtocolError("not an object")
    return message
