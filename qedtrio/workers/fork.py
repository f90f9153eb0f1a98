"""The `fork` engine: one launcher with its fork server, opened by Trio.

`run` holds the launcher for as long as it lives and turns what its fork
server says into workers and exit statuses. Every worker's `watch` runs in the
nursery of `run`, so that none outlives its fork server's owner.
"""

import array
import json
import logging
import math
import os
import shutil
import signal
import socket
import subprocess  # for its constants
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import cast

import trio

from qedtrio.errors import BrokenWorkerError, WorkerLostError, WorkerStartError
from qedtrio.state import remove_folder
from qedtrio.workers.child.protocol import Message
from qedtrio.workers.profile import Profile, launcher_environment
from qedtrio.workers.worker import Worker, killed_on_failure

__all__ = ["ForkServer"]

END_SECONDS = 3.0
ANSWER_SECONDS = 10.0
"""A fork takes milliseconds; a fork server that takes so long is not coming back."""
PACKET_BYTES = 65536

log = logging.getLogger(__name__)


class ForkServer:
    """Parent side of a launcher and its fork server.

    Args:
        profile: What its workers are.
        state_dir: Existing folder for what must lie on the host.
        notify: Called when a worker is gone or buried.

    Attributes:
        ready: Set once it can spawn.
        failure: Why it never became ready; empty otherwise.
    """

    def __init__(
        self, profile: Profile, state_dir: str, notify: Callable[[], None]
    ) -> None:
        self.ready = trio.Event()
        self.failure = ""
        self._profile = profile
        self._state_dir = state_dir
        self._notify = notify
        self._control: trio.socket.SocketType | None = None
        self._nursery: trio.Nursery | None = None
        self._workers: dict[int, Worker] = {}
        self._pending: dict[int, _Answer] = {}
        self._requests = 0
        self._dead = False

    async def run(self) -> None:
        """Open the launcher and serve until it is dead, with all its workers.

        Returns early, with `failure` set, when it never becomes ready.
        Cancellation ends it and every worker.
        """
        try:
            root = tempfile.mkdtemp(prefix="root-", dir=self._state_dir)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self.failure = str(error)
            return
        self._control = trio.socket.from_stdlib_socket(ours)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    await self._hold(nursery, root, theirs)
                finally:
                    # At once: burials wait for what only the dead could tell.
                    self._abandon()
                nursery.cancel_scope.cancel()
        finally:
            self._control.close()
            remove_folder(root)

    async def _hold(
        self, nursery: trio.Nursery, root: str, theirs: socket.socket
    ) -> None:
        try:
            process = await nursery.start(partial(self._open, root, theirs))
        except OSError as error:
            self.failure = str(error)
            return
        finally:
            theirs.close()
        nursery.start_soon(self._relay_stderr, process)
        with trio.move_on_after(self._profile.preload_seconds) as scope:
            while not self.ready.is_set():
                if not await self._take_packet():
                    self.failure = self.failure or "it died before it was ready"
                    return
            scope.deadline = math.inf
            while await self._take_packet():
                pass
        if scope.cancelled_caught:
            limit = self._profile.preload_seconds
            self.failure = f"it was not ready after {limit:g} s"

    async def _open(
        self,
        root: str,
        control: socket.socket,
        *,
        task_status: trio.TaskStatus[trio.Process],
    ) -> None:
        await trio.run_process(
            self._profile.launcher_arguments(root, control.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[control.fileno()],
            env=launcher_environment(),
            start_new_session=True,
            check=False,
            deliver_cancel=self._end,
            task_status=task_status,
        )

    async def _end(self, process: trio.Process) -> None:
        """Let the launcher sweep its pool; then kill what is left of it."""
        assert self._control is not None
        self._control.close()
        with trio.move_on_after(END_SECONDS):
            await process.wait()
        if process.returncode is None:  # so it still has its number
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)

    async def _relay_stderr(self, process: trio.Process) -> None:
        """Log what the preload prints, in bounded pieces."""
        assert process.stderr is not None
        async for part in process.stderr:
            text = bytes(part[:2000]).decode("utf-8", "replace").strip()
            log.info("pool printed", extra={"pool": self._profile.name, "text": text})

    async def _take_packet(self) -> bool:
        assert self._control is not None
        space = socket.CMSG_SPACE(16)
        try:
            data, ancillary, _, _ = await self._control.recvmsg(
                PACKET_BYTES, space, socket.MSG_CMSG_CLOEXEC
            )
        except (OSError, trio.ClosedResourceError):
            return False
        if not data:
            return False
        descriptors = array.array("i")
        for _, _, payload in ancillary:
            descriptors.frombytes(payload[: len(payload) - len(payload) % 4])
        self._take(cast("Message", json.loads(data)), list(descriptors))
        return True

    def _take(self, message: Message, descriptors: list[int]) -> None:
        match message["op"]:
            case "ready":
                self.ready.set()
            case "failed":
                self.failure = str(message["error"])
            case "spawned":
                self._pending.pop(cast("int", message["id"])).resolve(
                    cast("int", message["pid"]), descriptors
                )
            case "spawn_failed":
                self._pending.pop(cast("int", message["id"])).fail(
                    str(message["error"])
                )
            case "exit":
                if worker := self._workers.get(cast("int", message["pid"])):
                    worker.report_exit(cast("int", message["status"]))

    def _abandon(self) -> None:
        """Tell everyone who waits for the fork server that it is dead."""
        self._dead = True
        for answer in self._pending.values():
            answer.fail("the fork server died")
        self._pending.clear()
        for worker in self._workers.values():
            worker.report_exit(None)

    async def spawn(self) -> Worker:
        """Fork a worker and wait until it is sealed and serving.

        Cancellation leaves no worker behind.

        Raises:
            WorkerStartError: With the reason.
        """
        worker = await self._fork()
        try:
            async with killed_on_failure(worker):
                with trio.fail_after(self._profile.start_seconds):
                    born = await worker.receive()
                if born["op"] != "born":
                    raise WorkerStartError(f"a fresh worker failed: {born['error']}")
        except (trio.TooSlowError, WorkerLostError, BrokenWorkerError) as error:
            raise WorkerStartError(f"a fresh worker did not answer: {error}") from error
        return worker

    async def _fork(self) -> Worker:
        assert self._nursery is not None
        if self._is_dead():
            raise WorkerStartError("the fork server died")
        with ExitStack() as undo:
            try:
                ours, theirs = socket.socketpair()
                undo.callback(ours.close)
                with theirs:
                    folder = self._make_folder()
                    if folder:
                        undo.callback(shutil.rmtree, folder, ignore_errors=True)
                    pid, pidfds = await self._request(folder, theirs)
            except OSError as error:
                raise WorkerStartError(str(error)) from error
            undo.pop_all()
        pidfd, first = pidfds.pop(), pidfds.pop() if pidfds else None
        worker = Worker(
            pid=_host_pid(pidfd, pid),
            pidfd=pidfd,
            first_pidfd=first,
            sock=ours,
            folder=folder,
            kill_group=partial(self._kill_group, pid),
            notify=self._notify,
        )
        worker.watched.first_pid = _host_pid(first, 0) if first is not None else None
        self._workers[pid] = worker
        if self._is_dead():
            worker.report_exit(None)
        self._nursery.start_soon(self._keep, pid, worker)
        return worker

    async def _request(
        self, folder: str, theirs: socket.socket
    ) -> tuple[int, list[int]]:
        assert self._control is not None
        self._requests += 1
        number = self._requests
        answer = self._pending[number] = _Answer()
        message = {"op": "spawn", "id": number, "folder": folder}
        rights = array.array("i", [theirs.fileno()])
        try:
            with trio.move_on_after(ANSWER_SECONDS) as scope:
                await self._control.sendmsg(
                    [json.dumps(message).encode()],
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
                )
                # From here on a worker may exist, and only the answer names it.
                scope.shield = True
                await answer.wait()
            if scope.cancelled_caught:
                self._replace()
                with trio.CancelScope(shield=True):  # its end is an answer too
                    await answer.wait()
        finally:
            self._pending.pop(number, None)
        return answer.value()

    def _replace(self) -> None:
        """End a fork server that is stopped or stuck, so that another takes over."""
        assert self._nursery is not None
        log.error("fork server does not answer", extra={"pool": self._profile.name})
        self._nursery.cancel_scope.cancel()

    def _is_dead(self) -> bool:
        return self._dead

    async def _keep(self, pid: int, worker: Worker) -> None:
        try:
            await worker.watch()
        finally:
            if self._workers.get(pid) is worker:  # not a later one of its number
                del self._workers[pid]

    async def _kill_group(self, pid: int) -> None:
        assert self._control is not None
        with suppress(OSError, trio.ClosedResourceError):
            await self._control.send(json.dumps({"op": "kill", "pid": pid}).encode())

    def _make_folder(self) -> str:
        if self._profile.tier == "A":
            return ""
        folder = tempfile.mkdtemp(prefix="work-", dir=self._state_dir)
        if os.geteuid() == 0:
            uid = self._profile.sandbox("").worker_uid()
            os.chown(folder, uid, uid)
        return folder


class _Answer:
    """What the fork server says to one request."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._value: Callable[[], tuple[int, list[int]]] | None = None

    def resolve(self, pid: int, descriptors: list[int]) -> None:
        self._value = lambda: (pid, descriptors)
        self._event.set()

    def fail(self, reason: str) -> None:
        def raise_reason() -> tuple[int, list[int]]:
            raise WorkerStartError(reason)

        self._value = raise_reason
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    def value(self) -> tuple[int, list[int]]:
        assert self._value is not None
        return self._value()


def _host_pid(pidfd: int, inner: int) -> int:
    """Ask the kernel for the process id that this side sees (proc_pid_fdinfo(5))."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as lines:  # noqa: PTH123
            for line in lines:
                if line.startswith("Pid:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return inner
