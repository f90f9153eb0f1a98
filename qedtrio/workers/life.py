"""The life of a worker's processes, and the end of it: struck, watched, confirmed.

A death is confirmed by the kernel, never assumed. With a PID namespace (tier
A) the end of its first process is the end of all in it. Without one the worker
leads a process group; its fork server, which adopts what the group leaves
behind, tells when the group is empty.

States: ALIVE; GONE once the worker itself has ended and its exit status is
known or given up on; BURIED once everything it started is dead too. From the
first strike until its burial it is DYING. Nobody but `watch` buries.
"""

import logging
import math
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import trio

__all__ = ["BURIAL_SECONDS", "STATUS_SECONDS", "Life", "kill_group"]

STATUS_SECONDS = 2.0
"""How long after a death its exit status may take to arrive."""

BURIAL_SECONDS = 5.0
"""How long a killed worker may take to die before it is reported and struck again."""

LAST_SECONDS = 1.0
"""What is left to a worker that had its time when the daemon itself ends."""

ASK_SECONDS = 1.0
"""A fork server that takes no message for so long is itself in trouble."""

PIDFD_SIGNAL_PROCESS_GROUP = 1 << 2  # linux/pidfd.h, since 6.9

log = logging.getLogger(__name__)


class Life:
    """What is known about a worker's processes, and the power to end them.

    Args:
        pid: Host process id; -1 when it was reaped before we could ask.
        pidfd: Of the process; owned from here on.
        first_pidfd: Of the first process of its PID namespace; None without.
        kill_group: Asks the fork server to kill its process group, where there
            is no namespace.
        notify: Called when it is gone, and when it is buried.
        on_strike: Called at each strike, for what else can kill.

    Attributes:
        exit_status: As from waitpid(2); None while unknown.
        gone: Set once the worker itself has ended.
        buried: Set once all that it started has.
        failed_burials: How often it outlived a strike by `BURIAL_SECONDS`.
    """

    def __init__(
        self,
        *,
        pid: int,
        pidfd: int,
        first_pidfd: int | None,
        kill_group: Callable[[], Awaitable[None]],
        notify: Callable[[], None],
        on_strike: Callable[[], None],
    ) -> None:
        self.pid = pid
        self.exit_status: int | None = None
        self.gone = trio.Event()
        self.buried = trio.Event()
        self.failed_burials = 0
        self._pidfd = pidfd
        self._first = first_pidfd
        self._ask = kill_group
        self._notify = notify
        self._on_strike = on_strike
        self._reported = trio.Event()
        self._struck_at = math.inf

    @property
    def is_dying(self) -> bool:
        """Whether it was struck, and something of it still lives."""
        return self._struck_at < math.inf and not self.buried.is_set()

    def interrupt(self) -> None:
        """Send SIGINT to the worker itself, if it lives."""
        if not self.gone.is_set():
            with suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGINT)

    def report_exit(self, status: int | None) -> None:
        """Tell the exit status; None when nobody is left who could know it.

        A status also says that the worker's process group is empty.
        """
        if status is not None:
            self.exit_status = status
        self._reported.set()

    async def strike(self) -> None:
        """Kill everything that can be reached; bounded, confirms nothing."""
        if self.buried.is_set():
            return
        self._struck_at = min(self._struck_at, trio.current_time())
        self._on_strike()
        if self._first is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        elif self.exit_status is None:  # else its number may be another's by now
            # Directly, for a fork server may be stopped, busy or dead.
            kill_group(self._pidfd, self.pid)
            with trio.move_on_after(ASK_SECONDS, shield=True):
                await self._ask()

    async def watch(self, let_go: Callable[[], None]) -> None:
        """Own its death: wait for it, cause it when cancelled, confirm it.

        Cancelled, it tries once more for a bounded time and then gives up,
        loudly; another call takes over from there.

        Args:
            let_go: Called at the burial, before `buried` is set.
        """
        try:
            if not self.gone.is_set():
                await trio.lowlevel.wait_readable(self._pidfd)
                with trio.move_on_after(STATUS_SECONDS):
                    await self._reported.wait()
            self._note_gone()
            while not await self._bury(BURIAL_SECONDS, let_go):
                pass
        finally:
            self._note_gone()
            if not self.buried.is_set():
                left = self._struck_at + BURIAL_SECONDS - trio.current_time()
                seconds = min(BURIAL_SECONDS, max(LAST_SECONDS, left))
                with trio.CancelScope(shield=True):
                    await self._bury(seconds, let_go)

    def _note_gone(self) -> None:
        if not self.gone.is_set():
            self.gone.set()
            self._notify()

    async def _bury(self, seconds: float, let_go: Callable[[], None]) -> bool:
        await self.strike()
        with trio.move_on_after(seconds):
            await self._wait_dead()
            let_go()
            self._close()
            self.buried.set()
            self._notify()
            return True
        self.failed_burials += 1
        log.error(
            "worker does not die",
            extra={"worker_pid": self.pid, "tries": self.failed_burials},
        )
        return False

    async def _wait_dead(self) -> None:
        if self._first is not None:
            await trio.lowlevel.wait_readable(self._first)
            return
        await trio.lowlevel.wait_readable(self._pidfd)
        await self._reported.wait()
        if self.exit_status is None:  # its fork server died and could not tell
            with ExitStack() as opened:
                for member in _open_members(self.pid, opened):
                    await trio.lowlevel.wait_readable(member)

    def _close(self) -> None:
        for pidfd in (self._pidfd, self._first):
            if pidfd is not None:
                trio.lowlevel.notify_closing(pidfd)
                os.close(pidfd)


def kill_group(pidfd: int, leader: int) -> None:
    """Kill the process group that `leader` leads, or led: it may be dead.

    A number may be given to others once its group is empty, so the group is
    reached through the descriptor, or else its number is checked first.

    Args:
        pidfd: Of the leader.
        leader: Its process id.
    """
    with suppress(OSError):  # dead, and reaped
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    try:
        signal.pidfd_send_signal(
            pidfd, signal.SIGKILL, None, PIDFD_SIGNAL_PROCESS_GROUP
        )
    except ProcessLookupError:
        return
    except OSError:  # a kernel before 6.9
        _kill_numbered_group(pidfd, leader)


def _kill_numbered_group(pidfd: int, leader: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, 0)  # a zombie still holds its number
    except ProcessLookupError:
        # A group holds its leader's number too; a process of that number can
        # only be a new one.
        if Path(f"/proc/{leader}").exists():
            return
    with suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


def _open_members(group: int, opened: ExitStack) -> list[int]:
    """Descriptors of the processes in the group of a worker, which led its session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended
                pid = int(entry.name)
                if os.getpgid(pid) == os.getsid(pid) == group:
                    found.append(os.pidfd_open(pid))
                    opened.callback(os.close, found[-1])
    return found
