"""A worker's end of its control socket: blocking, one message at a time."""

import array
import socket

from qedtrio.workers.child.protocol import (
    HEADER_BYTES,
    Message,
    ProtocolError,
    body_size,
    decode,
    frame,
)

__all__ = ["Channel"]

MOST_DESCRIPTORS = 4


class Channel:
    """Receives requests and sends replies over one stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def receive(self) -> tuple[Message, list[int]]:
        """Wait for a message and the descriptors that came with it.

        Raises:
            EOFError: The daemon is gone.
            ProtocolError: It sent something else.
        """
        space = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
        head, ancillary, _, _ = self._sock.recvmsg(
            HEADER_BYTES, space, socket.MSG_CMSG_CLOEXEC
        )
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data[: len(data) - len(data) % 4])
        head += self._read(HEADER_BYTES - len(head)) if head else b""
        if len(head) < HEADER_BYTES:
            raise EOFError
        return decode(self._read(body_size(head))), list(descriptors)

    def send(self, message: Message) -> None:
        """Send one message, waiting until the daemon has room for it."""
        self._sock.sendall(frame(message))

    def close(self) -> None:
        """Let go of the socket; the daemon hears of it when no other holds it."""
        self._sock.close()

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._sock.recv(min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


__all__ += ["ProtocolError"]
