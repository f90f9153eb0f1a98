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
    "Message",
    "ProtocolError",
    "body_size",
    "decode",
    "frame",
]

Message = dict[str, object]

HEADER_BYTES = 4
MESSAGE_BYTES = 80 * 1024 * 1024
"""Longest message: code, files and a result at their largest, escaped."""


class ProtocolError(Exception):
    """The other side sent something that is no message."""


def frame(message: Message) -> bytes:
    """Encode one message with its header."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return struct.pack(">I", len(body)) + body


def body_size(header: bytes | bytearray | memoryview) -> int:
    """Read the length of the body from a header.

    Raises:
        ProtocolError: It is longer than any message.
    """
    size: int = struct.unpack_from(">I", header)[0]
    if size > MESSAGE_BYTES:
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
