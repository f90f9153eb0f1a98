"""One worker as its owner sees it: messages, interrupt, and a confirmed death.

Both engines make this same object. The control socket, the pipes of the
current run and the process itself are watched through one epoll descriptor,
so that a round trip costs one wake-up and no extra tasks.

States: BORN by its engine; in use by one owner at a time; then GONE and
BURIED, as `Life` tells.
"""

import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from qedtrio.errors import (
    BrokenWorkerError,
    OverloadedError,
    ReleaseFailedError,
    WorkerLostError,
)
from qedtrio.state import remove_folder
from qedtrio.workers.child.protocol import (
    HEADER_BYTES,
    REPLY_BYTES,
    Message,
    ProtocolError,
    body_size,
    decode,
    frame,
)
from qedtrio.workers.life import BURIAL_SECONDS, Life
from qedtrio.workers.output import Capture
from qedtrio.workers.watched import Watched

__all__ = ["OnPart", "Worker", "killed_on_failure"]

READ_BYTES = 65536
OnPart = Callable[[int, bytes], None]
"""Called with the stream's index and each part of output, as it arrives."""


class Worker:
    """A subprocess that answers messages.

    Args:
        pid: Host process id.
        pidfd: Of the process; owned from here on.
        first_pidfd: Of the first process of its PID namespace, whose death is
            the death of all in it; None without a namespace.
        sock: Control socket; owned from here on.
        folder: Private folder on the host, removed at the burial, or "".
        kill_group: Asks for the death of its process group where there is no
            namespace.
        notify: Called when it is gone, and when it is buried.

    Attributes:
        reply_bytes: The longest message that it may send.
    """

    def __init__(
        self,
        *,
        pid: int,
        pidfd: int,
        first_pidfd: int | None,
        sock: socket.socket,
        folder: str,
        kill_group: Callable[[], Awaitable[None]],
        notify: Callable[[], None],
    ) -> None:
        self.pid = pid
        self.started_at = trio.current_time()
        self.folder = folder
        self.session_id: str | None = None
        self.reply_bytes = REPLY_BYTES
        self.watched = Watched()
        self._life = Life(
            pid=pid,
            pidfd=pidfd,
            first_pidfd=first_pidfd,
            kill_group=kill_group,
            notify=notify,
            on_strike=self.watched.strike,
        )
        self.gone, self.buried = self._life.gone, self._life.buried
        self._pidfd = pidfd
        self._sock = sock
        self._buffer = bytearray()
        self._pipes: dict[int, int] = {}
        sock.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(sock.fileno(), select.EPOLLIN)
        self._poll.register(pidfd, select.EPOLLIN)

    def __repr__(self) -> str:
        state = (
            "buried"
            if self.buried.is_set()
            else "gone"
            if self.gone.is_set()
            else "alive"
        )
        return f"<Worker [pid {self.pid} | {state} | session {self.session_id}]>"

    # Messages ----------------------------------------------------------------

    def send_nowait(
        self, message: Message, descriptors: Sequence[int] = ()
    ) -> memoryview:
        """Send as much of a message as fits; return the rest for `send_rest`.

        Raises:
            WorkerLostError: The worker hung up; `gone` tells when and why.
        """
        data = memoryview(frame(message))
        try:
            if descriptors:
                sent = socket.send_fds(self._sock, [data], list(descriptors))
            else:
                sent = self._sock.send(data)
        except BlockingIOError:
            return data
        except OSError as error:
            raise WorkerLostError("the worker hung up") from error
        return data[sent:]

    async def send_rest(self, data: memoryview) -> None:
        """Send what `send_nowait` left; after a cancellation only `kill` helps."""
        try:
            while data:
                try:
                    data = data[self._sock.send(data) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._sock)
        except OSError as error:
            raise WorkerLostError("the worker hung up") from error

    async def receive_soon(self) -> Message:
        """Wait for the next message and look at nothing else.

        The cheap way for a reply that comes before any output matters: one
        wake-up, and the output waits in its pipe. Cancellation loses nothing.

        Raises:
            WorkerLostError: The worker hung up.
            BrokenWorkerError: It sent something that is no message.
        """
        while (message := self._next_message()) is None:
            await self._wait(self._sock)
            if not self._take_in():
                raise WorkerLostError("the worker hung up")
        return message

    async def receive(
        self, captures: Sequence[Capture] = (), on_part: OnPart | None = None
    ) -> Message:
        """Wait for the next message, taking in the run's output meanwhile.

        Cancellation loses nothing: a later call goes on where this one ended.

        Raises:
            WorkerLostError: The process ended, with all output taken in.
            BrokenWorkerError: It sent something that is no message.
        """
        self._refuse_buried()
        self._watch_pipes()
        while True:
            await self._wait(self._poll)
            ready = {descriptor for descriptor, _ in self._poll.poll(0)}
            for descriptor in ready & self._pipes.keys():
                self._take_output(descriptor, captures, on_part)
            if self._sock.fileno() in ready:
                hung_up = not self._take_in()
                if (message := self._next_message()) is not None:
                    return message
                if hung_up:  # the process may live on, but not for us
                    raise WorkerLostError("the worker hung up")
            elif self._pidfd in ready:
                raise WorkerLostError("the worker ended")

    async def _wait(self, what: socket.socket | select.epoll) -> None:
        """Wait until there is something to read.

        The burial may come before the wait, during it, or between its end and
        our turn to go on.
        """
        self._refuse_buried()
        with suppress(trio.ClosedResourceError):
            await trio.lowlevel.wait_readable(what)
        self._refuse_buried()

    def _refuse_buried(self) -> None:
        if self._poll.closed:
            raise WorkerLostError("the worker was released")

    def _take_in(self) -> bool:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._buffer += data
        return bool(data)

    def _next_message(self) -> Message | None:
        if len(self._buffer) < HEADER_BYTES:
            return None
        try:
            end = HEADER_BYTES + body_size(self._buffer, self.reply_bytes)
            if len(self._buffer) < end:
                return None
            body = bytes(self._buffer[HEADER_BYTES:end])
            del self._buffer[:end]
            return decode(body)
        except ProtocolError as error:
            raise BrokenWorkerError(f"the control channel carried {error}") from error

    # Output ------------------------------------------------------------------

    def open_pipes(self) -> list[int]:
        """Make pipes for stdout and stderr; return the ends to send and close.

        Raises:
            OverloadedError: The daemon is out of descriptors.
        """
        writers: list[int] = []
        try:
            for index in (0, 1):
                reader, writer = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(reader, False)
                self._pipes[reader] = index
                writers.append(writer)
        except OSError as error:
            for writer in writers:
                os.close(writer)
            self.close_pipes()
            raise OverloadedError(f"no pipe for the output: {error}") from error
        return writers

    def _watch_pipes(self) -> None:
        for reader in self._pipes:
            with suppress(FileExistsError):  # by an earlier call
                self._poll.register(reader, select.EPOLLIN)

    def close_pipes(
        self, captures: Sequence[Capture] = (), on_part: OnPart | None = None
    ) -> None:
        """Take in what the pipes still hold, and let go of them.

        A process that a run left behind can keep a pipe open but not full:
        what it writes from here on is lost to it.
        """
        for descriptor in list(self._pipes):
            for _ in range(16):  # a full pipe is one read; a flood is no reason to stay
                if not self._take_output(descriptor, captures, on_part):
                    break
            self._drop_pipe(descriptor)

    def _take_output(
        self, descriptor: int, captures: Sequence[Capture], on_part: OnPart | None
    ) -> bool:
        index = self._pipes.get(descriptor)
        if index is None:
            return False
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._drop_pipe(descriptor)
            return False
        if captures:
            captures[index].feed(data)
        if on_part is not None:
            on_part(index, data)
        return True

    def _drop_pipe(self, descriptor: int) -> None:
        if self._pipes.pop(descriptor, None) is not None:
            os.close(descriptor)

    # Life and death ----------------------------------------------------------

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the code it runs, if it lets us."""
        self._life.interrupt()

    async def request(self, message: Message) -> Message:
        """Send a message and wait for its reply; needs a deadline around it."""
        if rest := self.send_nowait(message):
            await self.send_rest(rest)
        return await self.receive()

    @property
    def exit_status(self) -> int | None:
        """As from waitpid(2); None while unknown, or where nobody could know."""
        return self._life.exit_status

    @property
    def is_dying(self) -> bool:
        """Whether it was killed, and something of it still lives."""
        return self._life.is_dying

    def report_exit(self, status: int | None) -> None:
        """Tell the exit status; None when nobody is left who could know it."""
        self._life.report_exit(status)

    async def release(self) -> None:
        """Kill it without waiting; `watch` confirms the death."""
        await self._life.strike()

    async def kill(self) -> None:
        """Kill it and everything it started; return when all is dead.

        Safe to call repeatedly and from several tasks. Cancellation does not
        stop the wait, which is bounded.

        Raises:
            ReleaseFailedError: It is still not dead; `watch` goes on trying.
        """
        with trio.move_on_after(BURIAL_SECONDS, shield=True):
            await self._life.strike()
            await self.buried.wait()
        if not self.buried.is_set():
            raise ReleaseFailedError(f"worker {self.pid} does not die")

    async def watch(self) -> None:
        """Own its death: wait for it, cause it when cancelled, confirm it.

        Cancelled, it gives up loudly on what does not die in time; another
        call then takes over.
        """
        try:
            await self._life.watch(self._close)
        finally:
            if self.buried.is_set() and self.folder:
                with trio.CancelScope(shield=True):  # nobody waits for a slow disk
                    await trio.to_thread.run_sync(remove_folder, self.folder)

    def _close(self) -> None:
        # The pipes are their run's, which may not have read them to the end.
        trio.lowlevel.notify_closing(self._poll)
        self._poll.close()
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()
        self.watched.bury()


@asynccontextmanager
async def killed_on_failure(worker: Worker) -> AsyncIterator[None]:
    """Kill `worker` when the block does not end well, cancellation included.

    The block's own error stands even when the worker does not die, of which
    `watch` tells and which it goes on trying.
    """
    try:
        yield
    except BaseException:
        with (
            trio.move_on_after(2 * BURIAL_SECONDS, shield=True),
            suppress(ReleaseFailedError),
        ):
            await worker.kill()
        raise
