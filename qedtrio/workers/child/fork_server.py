"""Imports a pool's preload once and forks a worker for each request.

Single-threaded by rule: a fork copies one thread only, so a preload that
starts threads is refused. Messages on the control socket are JSON, one a
packet; descriptors travel beside them:

    daemon → here   spawn {id, folder} + worker's socket · kill {pid}
    here → daemon   ready · failed {error} · spawned {id, pid} + pidfds
                    spawn_failed {id, error} · exit {pid, status}
"""

import array
import errno
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import cast

from qedtrio.sandbox import namespaces
from qedtrio.sandbox.tiers import Sandbox, Tier
from qedtrio.workers.child import faults, worker
from qedtrio.workers.child.forked import run_and_exit
from qedtrio.workers.child.groups import Groups
from qedtrio.workers.child.hugepages import collapse_pages
from qedtrio.workers.child.pool_init import request_namespace
from qedtrio.workers.child.protocol import Message

__all__ = ["serve"]


class PreloadError(Exception):
    """The preload cannot be imported, or is not safe to fork."""


def serve(
    spec: Message,
    sandbox: Sandbox,
    control: socket.socket,
    init: socket.socket | None,
) -> None:
    """Serve until the daemon closes the control socket.

    Args:
        spec: `name`: of the pool; `preload`: modules imported here; `late_preload`: modules imported
            in each worker; `entry`: `module:function` run in a worker;
            `warm_up`: the same, run here before the first fork, or "".
        sandbox: What each worker is sealed with.
        control: Packet socket to the daemon.
        init: Socket to the pool's init (tier A).
    """
    started = time.perf_counter()
    try:
        _preload(spec)
        server = _ForkServer(spec, sandbox, control, init)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        _send(control, {"op": "failed", "error": text[:2000]})
        raise
    _send(control, {"op": "ready", "seconds": time.perf_counter() - started})
    server.run()


def _preload(spec: Message) -> None:
    for name in cast("list[str]", spec["preload"]):
        importlib.import_module(name)
    worker.resolve(cast("str", spec["entry"]))
    if spec["warm_up"]:
        worker.resolve(cast("str", spec["warm_up"]))()
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208  # counts, needs no paths
    if threads > 1:
        raise PreloadError(
            f"the preload left {threads} threads, so a fork is unsafe;"
            f' set engine = "exec" in [pools.{spec["name"]}]'
        )
    gc.collect()
    gc.freeze()  # or each collection in a worker copies the shared pages
    collapse_pages()


class _ForkServer:
    def __init__(
        self,
        spec: Message,
        sandbox: Sandbox,
        control: socket.socket,
        init: socket.socket | None,
    ) -> None:
        self._entry = worker.resolve(cast("str", spec["entry"]))
        self._late_preload = cast("list[str]", spec["late_preload"])
        self._sandbox = sandbox
        self._control = control
        self._init = init
        self._seal = sandbox.prepare_seal()
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._groups = Groups(
            alone=sandbox.tier is Tier.A, adopts=sandbox.tier is Tier.C
        )
        self._firsts: dict[int, int] = {}  # worker → pidfd of its namespace's first
        self._wake, self._signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._signalled, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        while True:
            watched: list[socket.socket | int] = [self._control, self._wake]
            ready, _, _ = select.select(watched, [], [])
            if self._wake in ready:
                numbers = os.read(self._wake, 4096)
                self._report_deaths()
                if signal.SIGTERM in numbers:
                    break
            if self._control in ready and not self._answer():
                break
        self._groups.kill_all()

    def _report_deaths(self) -> None:
        for pid, status in self._groups.reap():
            self._forget_first(pid)
            _send(self._control, {"op": "exit", "pid": pid, "status": status})

    def _answer(self) -> str:
        """Do what the next packet asks; return what that was, "" at the end."""
        data, ancillary, _, _ = self._control.recvmsg(
            65536, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            return ""
        descriptors = array.array("i")
        for _, _, payload in ancillary:
            descriptors.frombytes(payload[: len(payload) - len(payload) % 4])
        try:
            return self._obey(json.loads(data), list(descriptors))
        except (ValueError, LookupError, TypeError) as error:
            # No worker shall pay for it, and whoever asked has a deadline.
            sys.stderr.write(f"a packet that is no request: {error!r}\n")
            return "nothing"
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _obey(self, request: Message, descriptors: list[int]) -> str:
        match request["op"]:
            case "kill":
                self._kill(cast("int", request["pid"]))
                self._report_deaths()
            case "starve":
                with faults.starved(cast("int", request["spare"])):
                    while self._answer() not in {"spawn", ""}:
                        pass  # the death of an earlier worker may be in between
            case "spawn":
                try:
                    self._spawn(request, descriptors)
                except OSError as error:
                    failure = {"op": "spawn_failed", "id": request["id"]}
                    _send(self._control, {**failure, "error": str(error)})
        return cast("str", request["op"])

    def _kill(self, pid: int) -> None:
        """Kill a worker and all it started, for a daemon that cannot."""
        self._groups.kill(pid)
        if (first := self._firsts.get(pid)) is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(first, signal.SIGKILL)

    def _forget_first(self, pid: int) -> None:
        if (first := self._firsts.pop(pid, None)) is not None:
            os.close(first)

    def _spawn(self, request: Message, descriptors: list[int]) -> None:
        descriptor = _only(descriptors)
        pidfds: list[int] = []
        pid = 0
        try:
            if self._init is None:
                pid = self._fork(request, descriptor)
            else:
                first, namespace = request_namespace(self._init)
                pidfds.append(first)
                pid = self._fork_into(namespace, request, descriptor)
            if (status := self._groups.add(pid)) is not None:
                _send(self._control, {"op": "exit", "pid": pid, "status": status})
            self._forget_first(pid)
            with faults.during_pidfd(request.get("fault")):
                pidfds.append(os.pidfd_open(pid))
            faults.before_answer(request.get("fault"))
            message = {"op": "spawned", "id": request["id"], "pid": pid}
            socket.send_fds(self._control, [json.dumps(message).encode()], pidfds)
            if len(pidfds) > 1:
                self._firsts[pid] = pidfds.pop(0)
        except OSError:
            for pidfd in pidfds:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            if pid:
                self._groups.kill(pid)
            raise
        finally:
            for pidfd in pidfds:
                os.close(pidfd)

    def _fork_into(self, namespace: int, request: Message, descriptor: int) -> int:
        try:
            namespaces.enter(namespace, namespaces.PID)
            try:
                return self._fork(request, descriptor)
            finally:
                namespaces.enter(self._own, namespaces.PID)
        finally:
            os.close(namespace)

    def _fork(self, request: Message, descriptor: int) -> int:
        with faults.during_fork(request.get("fault")):
            pid = os.fork()
            if pid == 0:
                run_and_exit(lambda: self._be_worker(request, descriptor))
        return pid

    def _be_worker(self, request: Message, descriptor: int) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        with suppress(PermissionError):  # the parent's setpgid was quicker
            os.setsid()
        sock = worker.keep_only(descriptor)
        folder = cast("str", request["folder"])

        def prepare() -> None:
            faults.before_birth(request.get("fault"))
            self._sandbox.seal_worker(self._seal, folder)
            for name in self._late_preload:
                importlib.import_module(name)

        worker.live(sock, self._entry, prepare)


def _only(descriptors: list[int]) -> int:
    if not descriptors:  # dropped by the kernel (unix(7), MSG_CTRUNC)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return descriptors[0]


def _send(control: socket.socket, message: Message) -> None:
    with suppress(OSError):  # the daemon is gone; its end of the socket tells run()
        control.send(json.dumps(message).encode())
