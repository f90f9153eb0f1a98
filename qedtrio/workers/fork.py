"""The `fork` engine: one launcher with its fork server, opened by Trio.

`run` holds the launcher for as long as it lives and turns what its fork
server says into workers and exit statuses. Every worker's `watch` runs in the
nursery of `run`, so that none outlives its fork server's owner.
"""

import logging
import math
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import cast

import trio

from qedtrio.errors import BrokenWorkerError, WorkerLostError, WorkerStartError
from qedtrio.state import remove_folder
from qedtrio.workers.answer import Answer, host_pid
from qedtrio.workers.child.protocol import Message, ProtocolError
from qedtrio.workers.control import Control
from qedtrio.workers.faults import INSIDE, SPARE, Fault, Faults, starved_by
from qedtrio.workers.launch import relay_output, run_launcher
from qedtrio.workers.profile import Profile
from qedtrio.workers.worker import Worker, killed_on_failure

__all__ = ["ForkServer"]

DISOWN_SECONDS = 5.0
"""How long a worker that nobody can own may take to be reported dead."""

log = logging.getLogger(__name__)


class ForkServer:
    """Parent side of a launcher and its fork server.

    Args:
        profile: What its workers are.
        state_dir: Existing folder for what must lie on the host.
        notify: Called when a worker is gone or buried.
        faults: What goes wrong on purpose; None for nothing, as always but in
            tests.

    Attributes:
        ready: Set once it can spawn.
        failure: Why it never became ready; empty otherwise.
    """

    def __init__(
        self,
        profile: Profile,
        state_dir: str,
        notify: Callable[[], None],
        faults: Faults | None = None,
    ) -> None:
        self.ready = trio.Event()
        self.failure = ""
        self._profile = profile
        self._state_dir = state_dir
        self._notify = notify
        self._faults = faults
        self._control: Control | None = None
        self._process: trio.Process | None = None
        self._nursery: trio.Nursery | None = None
        self._workers: dict[int, Worker] = {}
        self._pending: dict[int, Answer] = {}
        self._unclaimed: dict[int, int | None] = {}
        self._disowned: dict[int, trio.Event] = {}
        self._requests = 0
        self._dead = False

    async def run(self) -> None:
        """Open the launcher and serve until it is dead, with all its workers.

        Returns early, with `failure` set, when it never becomes ready.
        Cancellation ends it and every worker.
        """
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self.failure = str(error)
            return
        try:
            root = tempfile.mkdtemp(prefix="root-", dir=self._state_dir)
        except OSError as error:
            self.failure = str(error)
            ours.close()
            theirs.close()
            return
        self._control = Control(ours)
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
            assert self._control is not None
            launcher = partial(run_launcher, self._profile, root, theirs, self._control)
            self._process = await nursery.start(launcher)
        except OSError as error:
            self.failure = str(error)
            return
        finally:
            theirs.close()
        nursery.start_soon(relay_output, self._process, self._profile.name)
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

    async def _take_packet(self) -> bool:
        assert self._control is not None
        try:
            if (packet := await self._control.receive()) is None:
                return False
            self._take(*packet)
        except (ProtocolError, LookupError, TypeError) as error:
            log.error(  # noqa: TRY400  # the traceback would be of our own parser
                "fork server is broken",
                extra={"pool": self._profile.name, "why": repr(error)},
            )
            self.failure = f"the fork server sent what is no message: {error}"
            return False
        return True

    def _take(self, message: Message, descriptors: list[int]) -> None:
        match message["op"]:
            case "ready":
                self.ready.set()
            case "failed":
                self.failure = str(message["error"])
            case "spawned":
                self._take_worker(message, descriptors)
            case "spawn_failed":
                self._take_failure(message)
            case "exit":
                self._take_exit(
                    cast("int", message["pid"]), cast("int", message["status"])
                )

    def _take_failure(self, message: Message) -> None:
        if answer := self._pending.pop(cast("int", message["id"]), None):
            answer.fail(str(message["error"]))

    def _take_exit(self, pid: int, status: int) -> None:
        if pid in self._unclaimed:
            self._unclaimed[pid] = status
        elif worker := self._workers.get(pid):
            worker.report_exit(status)
        elif pid in self._disowned:
            self._disowned[pid].set()

    def _take_worker(self, message: Message, descriptors: list[int]) -> None:
        answer = self._pending.pop(cast("int", message["id"]), None)
        pid = cast("int", message["pid"])
        if answer and len(descriptors) == (2 if self._profile.tier == "A" else 1):
            # It may end before the task that waits for it has its turn.
            self._unclaimed[pid] = None
            answer.resolve(pid, descriptors)
            return
        # We had no room for its descriptors (unix(7), MSG_CTRUNC), and without
        # them nobody here can own it.
        for descriptor in descriptors:
            os.close(descriptor)
        assert self._nursery is not None
        self._disowned[pid] = trio.Event()
        self._nursery.start_soon(self._disown, pid, answer)

    async def _disown(self, pid: int, answer: Answer | None) -> None:
        """Have the fork server kill a worker; then tell who waits for it."""
        try:
            with trio.move_on_after(DISOWN_SECONDS):
                await self._kill_group(pid)
                await self._disowned[pid].wait()
                return
            log.error("disowned worker does not die", extra={"worker_pid": pid})
        finally:
            del self._disowned[pid]
            if answer:
                answer.fail(
                    "no descriptor was free to watch it by: Too many open files"
                )

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
        if self.is_dead():
            raise WorkerStartError("the fork server died")
        fault = self._faults.draw() if self._faults else None
        with ExitStack() as undo:
            try:
                with starved_by(fault):
                    ours, theirs = socket.socketpair()
                undo.callback(ours.close)
                with theirs:
                    folder = self._make_folder()
                    if folder:
                        undo.callback(shutil.rmtree, folder, ignore_errors=True)
                    pid, pidfds = await self._request(folder, theirs, fault)
                try:
                    worker = self._own(pid, pidfds, ours, folder, fault)
                except OSError:
                    await self._bury_unowned(pid, pidfds)  # noqa: ASYNC120  # shielded
                    raise
            except OSError as error:
                raise WorkerStartError(str(error)) from error
            undo.pop_all()
        return worker

    def _own(
        self,
        pid: int,
        pidfds: list[int],
        sock: socket.socket,
        folder: str,
        fault: Fault | None,
    ) -> Worker:
        """Make a worker of what was forked, and watch it from here on."""
        assert self._nursery is not None
        status = self._unclaimed.pop(pid)
        first = pidfds[0] if len(pidfds) > 1 else None
        worker = Worker(
            pid=pid if first is None else host_pid(pidfds[-1], pid),
            pidfd=pidfds[-1],
            first_pidfd=first,
            sock=sock,
            folder=folder,
            kill_group=partial(self._kill_group, pid),
            notify=self._notify,
        )
        worker.watched.first_pid = host_pid(first, 0) if first is not None else None
        self._workers[pid] = worker
        if status is not None or self.is_dead():
            worker.report_exit(status)
        self._nursery.start_soon(self._keep, pid, worker)
        if fault is Fault.WORKER_DIES:
            with suppress(OSError):
                pidfd = os.dup(pidfds[-1])
                self._nursery.start_soon(self._kill_some_day, worker, pidfd)
        return worker

    async def _bury_unowned(self, pid: int, pidfds: list[int]) -> None:
        """Kill a worker that we had no descriptors to talk to."""
        with trio.move_on_after(DISOWN_SECONDS, shield=True):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfds[0], signal.SIGKILL)
            await self._kill_group(pid)
            await trio.lowlevel.wait_readable(pidfds[0])
        for pidfd in pidfds:
            os.close(pidfd)

    async def _kill_some_day(self, worker: Worker, pidfd: int) -> None:
        assert self._faults is not None
        try:
            await self._faults.wait_doom(worker)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)

    async def _request(
        self, folder: str, theirs: socket.socket, fault: Fault | None
    ) -> tuple[int, list[int]]:
        self._requests += 1
        number = self._requests
        answer = self._pending[number] = Answer()
        message: Message = {"op": "spawn", "id": number, "folder": folder}
        if fault in INSIDE:
            message["fault"] = fault
        try:
            with trio.move_on_after(self._profile.start_seconds) as scope:
                await self._send(message, theirs, fault)
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

    async def _send(
        self, message: Message, theirs: socket.socket, fault: Fault | None
    ) -> None:
        assert self._control is not None
        if fault in SPARE:
            await self._control.send({"op": "starve", "spare": SPARE[fault]})
        if fault is Fault.ANSWER_LOST:
            self._control.starve_next()
        await self._control.send(message, [theirs.fileno()])
        if fault is Fault.LAUNCHER_DIES and self._process is not None:
            self._process.kill()

    def _replace(self) -> None:
        """End a fork server that is stopped or stuck, so that another takes over."""
        assert self._nursery is not None
        log.error("fork server does not answer", extra={"pool": self._profile.name})
        self._nursery.cancel_scope.cancel()

    def is_dead(self) -> bool:
        """Whether it can spawn no more."""
        return self._dead

    async def wait_buried(self) -> None:
        """Wait until none of the present workers is left, however long it takes."""
        for worker in list(self._workers.values()):
            await worker.buried.wait()

    async def _keep(self, pid: int, worker: Worker) -> None:
        try:
            await worker.watch()
        finally:
            if self._faults is not None:
                self._faults.note_lease(worker)
            if self._workers.get(pid) is worker:  # not a later one of its number
                del self._workers[pid]

    async def _kill_group(self, pid: int) -> None:
        assert self._control is not None
        with suppress(OSError):
            await self._control.send({"op": "kill", "pid": pid})

    def _make_folder(self) -> str:
        if self._profile.tier == "A":
            return ""
        folder = tempfile.mkdtemp(prefix="work-", dir=self._state_dir)
        if os.geteuid() == 0:
            uid = self._profile.sandbox("").worker_uid()
            os.chown(folder, uid, uid)
        return folder
