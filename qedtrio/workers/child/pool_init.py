"""PID 1 of a pool: small, single-threaded, and the root of all its deaths.

It reaps orphans, and for each worker forks a tiny process that becomes PID 1
of the worker's own namespace. The fork server then forks the worker into that
namespace as an ordinary process, so that signals from inside work as usual
(PID 1 would ignore them), while killing the tiny one still kills everything.
"""

import errno
import os
import select
import signal
import socket
from contextlib import suppress
from typing import NoReturn

from qedtrio.sandbox import namespaces
from qedtrio.sandbox.privileges import die_with_parent
from qedtrio.workers.child.forked import run_and_exit

__all__ = ["request_namespace", "serve"]

MAKE, MADE, LOST = b"make", b"made", b"lost"


def serve(requests: socket.socket, server: int) -> NoReturn:
    """Make namespaces on request until the fork server ends; then end too.

    Args:
        requests: Socket to the fork server, which sends `MAKE` for a namespace,
            and `LOST` when it had no descriptor free to take it with.
        server: Process id of the fork server.
    """
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    wake, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    newest: list[int] = []  # pidfd of the namespace made last
    while True:
        watched: list[socket.socket | int] = [requests, wake]
        ready, _, _ = select.select(watched, [], [])
        if wake in ready:
            os.read(wake, 4096)
            _reap(server)
        if requests in ready:
            match requests.recv(16):
                case b"":
                    os._exit(0)
                case request:
                    _drop(newest, kill=request == LOST)
            if request == MAKE:
                newest = _make_namespace(requests, own)


def _reap(server: int) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid == server:
                os._exit(os.waitstatus_to_exitcode(status) & 0x7F)


def _drop(pidfds: list[int], *, kill: bool) -> None:
    for pidfd in pidfds:
        if kill:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
    pidfds.clear()


def _make_namespace(requests: socket.socket, own: int) -> list[int]:
    """Answer with a namespace's descriptors, or without any and the reason.

    Returns:
        The pidfd of its first process, to be kept until the next request;
        nothing when there is none.

    A host short of processes or descriptors fails one spawn, not the pool.
    """
    descriptors: list[int] = []
    try:
        _fork_first(own, descriptors)
        socket.send_fds(requests, [MADE], descriptors)
    except OSError as error:
        _drop(descriptors[:1], kill=True)
        _drop(descriptors[1:], kill=False)
        requests.send(str(error).encode())
        return []
    _drop(descriptors[1:], kill=False)
    return descriptors[:1]


def _fork_first(own: int, descriptors: list[int]) -> None:
    namespaces.unshare(namespaces.PID)
    try:
        pid = os.fork()
    except OSError:
        namespaces.enter(own, namespaces.PID)
        raise
    if pid == 0:
        run_and_exit(_be_first)
    namespaces.enter(own, namespaces.PID)  # else the next unshare is refused
    try:
        descriptors.append(os.pidfd_open(pid))
        place = f"/proc/{pid}/ns/pid"
        descriptors.append(os.open(place, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is its own
        raise


def _be_first() -> NoReturn:
    """Reap whatever is orphaned in this namespace, until killed."""
    die_with_parent()
    signal.set_wakeup_fd(-1)
    os.closerange(0, 64)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        signal.sigwait([signal.SIGCHLD])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def request_namespace(server_end: socket.socket) -> tuple[int, int]:
    """Ask the pool's init for a fresh PID namespace, from the fork server.

    Returns:
        A pidfd of its first process, and a descriptor of the namespace.

    Raises:
        OSError: It could not make one.
    """
    server_end.send(MAKE)
    answer, descriptors, _, _ = socket.recv_fds(server_end, 1024, 2)
    if len(descriptors) != 2:
        for descriptor in descriptors:
            os.close(descriptor)
        if answer == MADE:  # the kernel dropped them (unix(7), MSG_CTRUNC)
            server_end.send(LOST)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        raise OSError(answer.decode() or "the pool's init is gone")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    first, namespace = descriptors
    return first, namespace
