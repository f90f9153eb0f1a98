"""The daemon's end of a fork server's control socket: packets of JSON.

Each packet is one message; descriptors travel beside it. The kernel drops
descriptors, but not the packet, where the receiver has no room for them
(unix(7), MSG_CTRUNC): whoever receives checks how many came.
"""

import array
import json
import os
import socket
from collections.abc import Sequence
from contextlib import nullcontext

import trio

from qedtrio.workers.child.faults import starved
from qedtrio.workers.child.protocol import Message, ProtocolError, decode

__all__ = ["Control", "Packet"]

PACKET_BYTES = 65536

Packet = tuple[Message, list[int]]
"""A message and the descriptors that came with it, which the receiver owns."""


class Control:
    """Sends to and receives from one fork server.

    Args:
        sock: Packet socket; owned from here on.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._plain = sock
        self._sock = trio.socket.from_stdlib_socket(sock)
        self._starve_next = False

    def close(self) -> None:
        """Hang up, which ends the fork server; whoever waits is woken."""
        self._sock.close()

    def starve_next(self) -> None:
        """Lose the descriptors of the next packet (fault injection)."""
        self._starve_next = True

    async def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send one message.

        Raises:
            OSError: The fork server is dead, or we hung up.
        """
        rights = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        try:
            await self._sock.sendmsg(
                [json.dumps(message).encode()], ancillary if descriptors else []
            )
        except trio.ClosedResourceError as error:
            raise BrokenPipeError("the fork server is shut down") from error

    async def receive(self) -> Packet | None:
        """Wait for the next packet; None when the fork server is dead.

        Raises:
            ProtocolError: What came is no message.
        """
        if self._plain.fileno() < 0:
            return None
        try:
            found = None
            while found is None:
                await trio.lowlevel.wait_readable(self._plain)
                found = self._receive_nowait()
        except (OSError, trio.ClosedResourceError):
            return None
        data, ancillary = found
        descriptors = array.array("i")
        for _, _, payload in ancillary:
            descriptors.frombytes(payload[: len(payload) - len(payload) % 4])
        if not data:
            return None
        try:
            return decode(data), list(descriptors)
        except ProtocolError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def _receive_nowait(self) -> tuple[bytes, list[tuple[int, int, bytes]]] | None:
        space = socket.CMSG_SPACE(16)
        try:
            with starved() if self._starve_next else nullcontext():
                data, ancillary, _, _ = self._plain.recvmsg(
                    PACKET_BYTES, space, socket.MSG_CMSG_CLOEXEC
                )
        except BlockingIOError:
            return None
        self._starve_next = False
        return data, ancillary
