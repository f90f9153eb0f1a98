"""Faults that happen for real in a fork server, for tests of what follows.

A spawn message names one only in a daemon that was started with `--inject`;
there is no other way to ask for any.
"""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from qedtrio.sandbox import namespaces

__all__ = [
    "before_answer",
    "before_birth",
    "during_fork",
    "during_pidfd",
    "starved",
]


@contextmanager
def starved(spare: int = 0) -> Iterator[None]:
    """Leave this process so many descriptors to open within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = [os.dup(0) for _ in range(spare + 1)]  # the numbers that are free
    for free in lowest:
        os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def during_fork(fault: object) -> Iterator[None]:
    """`no_fork`: no process can be forked within the block."""
    if fault != "no_fork":
        yield
        return
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
    try:
        with suppress(OSError):  # only root, whom that limit does not bind, may
            _enter_dead_namespace()
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
        with suppress(OSError):
            namespaces.enter(own, namespaces.PID)
        os.close(own)


def _enter_dead_namespace() -> None:
    """Fork into a namespace whose first process is dead: ENOMEM (pid_namespaces(7))."""
    namespaces.unshare(namespaces.PID)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@contextmanager
def during_pidfd(fault: object) -> Iterator[None]:
    """`no_pidfd`: there is no descriptor for the worker's pidfd."""
    if fault != "no_pidfd":
        yield
        return
    with starved():
        yield


def before_answer(fault: object) -> None:
    """`server_dies`: after the fork, before anybody is told."""
    if fault == "server_dies":
        os.kill(os.getpid(), signal.SIGKILL)


def before_birth(fault: object) -> None:
    """What goes wrong in the worker itself, before it is sealed."""
    match fault:
        case "start_fails":
            os._exit(3)
        case "start_hangs":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "no_memory":
            _leave_no_memory()


def _leave_no_memory() -> None:
    """Allow no more address space than is in use, and want some."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, used))
    bytearray(64 * 1024 * 1024)
