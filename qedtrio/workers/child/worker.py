"""A worker's first steps: descriptors, sandbox, then the entry it was made for."""

import importlib
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import cast

from qedtrio.workers.child.channel import Channel

__all__ = ["Entry", "keep_only", "live", "resolve"]

Entry = Callable[[Channel], None]
"""What a worker does for the rest of its life, until the channel ends."""


def resolve(path: str) -> Callable[..., None]:
    """Import `module:function`."""
    module, _, name = path.partition(":")
    return cast("Callable[..., None]", getattr(importlib.import_module(module), name))


def keep_only(descriptor: int) -> socket.socket:
    """Close everything but the control socket; 0, 1 and 2 become /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    kept = os.dup2(descriptor, 3, inheritable=False)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.closerange(4, min(hard, 1 << 20))
    return socket.socket(fileno=kept)


def live(sock: socket.socket, entry: Entry, prepare: Callable[[], None]) -> None:
    """Prepare this process, tell the daemon, and serve until it hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until a run wants it
    channel = Channel(sock)
    try:
        prepare()
    except Exception as error:
        channel.send({"op": "unborn", "error": f"{type(error).__name__}: {error}"})
        return
    channel.send({"op": "born"})
    try:
        entry(channel)
    except (EOFError, ConnectionError):
        return  # the daemon let go of us
