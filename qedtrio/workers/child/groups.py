"""The workers of a fork server: who lives, who died, and what they left.

With PID namespaces (tier A) the kernel takes care of what a worker started.
Without them (tiers B and C) each worker leads a process group.

Tier B's seccomp filter makes leaving the group impossible, so one killpg
reaches all of it. In tier C a descendant may leave; then it is adopted by the
fork server, which is a subreaper, when its parent dies, and killed as soon as
it is seen: processes that outlive their parents are not supported there.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["Groups"]


class Groups:
    """The workers of a fork server, each the leader of a process group.

    Args:
        alone: Whether a worker's descendants are no concern of ours (tier A).
        adopts: Whether strays are adopted and must be hunted (tier C).
    """

    def __init__(self, *, alone: bool, adopts: bool) -> None:
        self._alone = alone
        self._adopts = adopts
        self._alive: set[int] = set()
        self._dying: dict[int, int] = {}

    def add(self, pid: int) -> None:
        """Take a fresh worker, and make it a leader if it has not done so yet."""
        with suppress(OSError):  # it may have, or have died
            os.setpgid(pid, pid)
        self._alive.add(pid)

    def kill(self, pid: int) -> None:
        """Kill a worker's whole group; `reap` tells when it is gone."""
        if pid in self._alive or pid in self._dying:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def reap(self) -> Iterator[tuple[int, int]]:
        """Collect the dead; yield the workers whose whole group is gone.

        Yields:
            Process id and wait status of the worker.
        """
        while True:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid:
                    if pid in self._alive:
                        self._alive.discard(pid)
                        self._dying[pid] = status
                    continue
            break
        if self._adopts:
            self._hunt()
        for pid in list(self._dying):
            if self._alone or not self._strike(pid):
                yield pid, self._dying.pop(pid)

    def kill_all(self) -> None:
        """Kill every group and wait until no child is left."""
        for pid in [*self._alive, *self._dying]:
            self.kill(pid)
        while True:
            for _ in self.reap():
                pass
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                return

    def _strike(self, pid: int) -> bool:
        """Kill a group again; whether anything of it was left."""
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _hunt(self) -> None:
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        with suppress(OSError):
            for text in children.read_text().split():
                if int(text) not in self._alive:
                    with suppress(ProcessLookupError):
                        os.kill(int(text), signal.SIGKILL)
