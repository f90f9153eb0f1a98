"""The workers of a fork server: who lives, who died, and what they left.

With PID namespaces (tier A) the kernel takes care of what a worker started.
Without them (tiers B and C) each worker leads a process group, and a killpg
reaches all of it at once: the kernel lets no fork slip through (a fork with a
signal pending starts over). It is sent while the leader is still unreaped and
holds its number, which could be another's afterwards.

Tier B's seccomp filter makes leaving the group impossible. In tier C a
descendant may leave; then it is adopted by the fork server, which is a
subreaper, when its parent dies, and killed as soon as it is seen: processes
that outlive their parents are not supported there. Whose they were nobody can
tell, so no death is reported while there are any.
"""

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["Groups", "kill_children"]


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

    def add(self, pid: int) -> int | None:
        """Take a fresh worker, and make it a leader if it has not done so yet.

        Returns:
            The wait status of an earlier worker of this number, which is
            reported nowhere else: its group is empty, or the number were taken.
        """
        with suppress(OSError):  # it may have, or have died
            os.setpgid(pid, pid)
        self._alive.add(pid)
        return self._dying.pop(pid, None)

    def kill(self, pid: int) -> None:
        """Kill a worker's whole group; `reap` tells when it is gone."""
        if pid in self._alive:  # else it was struck when it was found dead
            _kill_group(pid)

    def reap(self) -> Iterator[tuple[int, int]]:
        """Collect the dead; yield the workers whose whole group is gone.

        Yields:
            Process id and wait status of the worker.
        """
        while dead := _find_dead():
            if dead in self._alive and not self._alone:
                _kill_group(dead)
            _, status = os.waitpid(dead, 0)
            if dead in self._alive:
                self._alive.discard(dead)
                self._dying[dead] = status
        if self._adopts and self._hunt():
            return  # their deaths bring us here again
        for pid in list(self._dying):
            if self._alone or not _has_members(pid):
                yield pid, self._dying.pop(pid)

    def kill_all(self) -> None:
        """Kill every group and wait until no child is left."""
        for pid in self._alive:
            _kill_group(pid)
        while True:
            for _ in self.reap():
                pass
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                return

    def _hunt(self) -> bool:
        """Kill the strays; whether there were any."""
        strays = [child for child in _children() if child not in self._alive]
        for stray in strays:
            _kill_stray(stray, self._alive)
        return bool(strays)


def kill_children(seconds: float) -> None:
    """Kill every child with its group, and whoever is adopted meanwhile.

    For a subreaper with a single thread, which blocks SIGCHLD from here on.

    Args:
        seconds: When to leave those that do not die to their fate.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for child in _children():
            _kill_stray(child, ())
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is None:
                signal.sigtimedwait([signal.SIGCHLD], left)
        except ChildProcessError:
            return


def _find_dead() -> int:
    """A child that has ended, left unreaped; 0 when there is none."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        found = os.waitid(os.P_ALL, 0, options)
    except ChildProcessError:
        return 0
    return found.si_pid if found else 0


def _kill_group(leader: int) -> None:
    with suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


def _kill_stray(child: int, spared: Collection[int]) -> None:
    """Kill a child and its group, unless that is a living worker's or ours."""
    with suppress(OSError):
        group = os.getpgid(child)
        os.kill(child, signal.SIGKILL)
        if group != os.getpgrp() and group not in spared:
            os.killpg(group, signal.SIGKILL)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)  # harmless, should the number be another's by now
    except ProcessLookupError:
        return False
    except PermissionError:  # it is
        return False
    return True


def _children() -> list[int]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return [int(text) for text in path.read_text().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return []
