"""A job worker: calls one function for each request, on its main thread."""

import importlib
from typing import cast

from qedtrio.sandbox.rlimits import apply_limits
from qedtrio.workers.child.channel import Channel
from qedtrio.workers.child.protocol import Message

__all__ = ["serve"]


def serve(channel: Channel) -> None:
    """Serve until the daemon hangs up.

    A `lease` names the function as `module:name`; each `job` is its argument.
    """
    function = None
    while True:
        request, _ = channel.receive()
        if request["op"] == "lease":
            module, _, name = cast("str", request["function"]).partition(":")
            function = getattr(importlib.import_module(module), name)
            apply_limits(cast("dict[str, float]", request["limits"]))
            channel.send({"op": "done"})
        elif request["op"] == "job" and function is not None:
            value: Message = function(request["job"])
            channel.send({"op": "done", "value": value})
        else:
            channel.send({"op": "done"})
