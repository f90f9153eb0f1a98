"""The process that the daemon opens for a pool; it outlives nothing.

Theory of operation:

    daemon ─ opens ─ launcher            watches the daemon's socket, single thread
                       └─ pool init      PID 1 of the pool's namespace (tier A):
                            │            reaps, and makes the first process of each
                            │            worker's namespace
                            └─ fork server   imports the preload, forks the workers

The launcher keeps one end of the control socket only to see it close. When
the daemon is gone, however it went, the launcher kills the pool init, and the
kernel kills everything below it. When the launcher is killed itself, the
parent-death signal does the same; that is safe here, and only here, because
these processes have one thread each.

In tiers B and C there is no pool init, and the fork server is the launcher's
child; at the end of the control socket, and on the parent-death signal, it
kills every worker's process group. When it is killed itself, the launcher
adopts what it leaves and kills that. The daemon sees the control socket close
only after whoever sweeps has ended.
"""

import json
import os
import select
import signal
import socket
import sys
from typing import cast

from qedtrio.sandbox.privileges import (
    become_subreaper,
    die_with_parent,
    offer_to_oom_killer,
)
from qedtrio.sandbox.tiers import Sandbox, Tier
from qedtrio.workers.child import fork_server, pool_init
from qedtrio.workers.child.forked import run_and_exit
from qedtrio.workers.child.groups import kill_children
from qedtrio.workers.child.protocol import Message

__all__ = ["main"]

SWEEP_SECONDS = 5.0
"""What does not die within this is left to its fate, or the pool never returns."""


def main() -> None:
    """Run with the pool's description and the control socket as arguments."""
    spec: Message = json.loads(sys.argv[1])
    control = socket.socket(fileno=int(sys.argv[2]))
    sandbox = Sandbox.from_message(cast("dict[str, object]", spec["sandbox"]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the daemon's
    started_as_root = os.geteuid() == 0
    offer_to_oom_killer()
    if sandbox.tier is not Tier.A:
        become_subreaper()
    try:
        sandbox.leave_host()
    except Exception as error:
        _report(control, error)
        sys.exit(1)
    own = os.pidfd_open(os.getpid())
    child = os.fork()
    if child == 0:
        _follow(own, sandbox.tier)
        run_and_exit(lambda: _serve(spec, sandbox, control, started_as_root))
    os.close(own)
    sys.exit(_watch(control, child))


def _follow(launcher: int, tier: Tier) -> None:
    """Be told of the launcher's death, which may have happened already.

    Its process id would not tell: seen from another namespace it is 0.
    """
    die_with_parent(signal.SIGKILL if tier is Tier.A else signal.SIGTERM)
    ready, _, _ = select.select([launcher], [], [], 0)
    if ready:
        os._exit(1)
    os.close(launcher)


def _serve(
    spec: Message, sandbox: Sandbox, control: socket.socket, started_as_root: bool
) -> None:
    try:
        sandbox.settle_pool(started_as_root=started_as_root)
    except Exception as error:
        _report(control, error)
        raise
    if sandbox.tier is not Tier.A:
        fork_server.serve(spec, sandbox, control, None)
        return
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.fork()
    if server == 0:
        here.close()
        run_and_exit(lambda: fork_server.serve(spec, sandbox, control, there))
    there.close()
    control.close()
    pool_init.serve(here, server)


def _report(control: socket.socket, error: Exception) -> None:
    text = f"{type(error).__name__}: {error}"
    control.send(json.dumps({"op": "failed", "error": text[:2000]}).encode())


def _watch(control: socket.socket, child: int) -> int:
    """Wait until the daemon or the child is gone; leave neither behind."""
    poll = select.poll()
    poll.register(control, select.POLLHUP | select.POLLRDHUP)
    pidfd = os.pidfd_open(child)
    poll.register(pidfd, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll()}
    if pidfd not in ready:
        # Let a fork server without namespaces sweep its groups by itself.
        os.kill(child, signal.SIGTERM)
        poll.unregister(control)
        if not poll.poll(2000):
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    kill_children(SWEEP_SECONDS)
    return os.waitstatus_to_exitcode(status) & 0x7F


if __name__ == "__main__":
    main()
