"""Readings of a live daemon: its processes, its folders, and what it says."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import trio

from qedtrio.cli.bench.daemon import Daemon
from qedtrio.cli.bench.scenarios import fresh_item
from qedtrio.cli.bench.soak.leaks import Reading
from qedtrio.cli.calls import RefusedError, ask
from qedtrio.cli.http import open_connection

__all__ = ["Watcher", "family", "own_cgroups", "own_folders"]

SETTLE_SECONDS = 30.0
"""For a pool that lost its server to preload again, and all the rest."""

INTERVAL_SECONDS = 0.2
"""Between two looks at processes that send no events to us."""

WAKING_ITEMS = 8
CGROUPS = Path("/sys/fs/cgroup")
IDLE_THREAD = "Trio thread"
"""How the kernel knows a thread that Trio keeps for the next job."""


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """What is read of a pool."""

    state: str
    starting: int
    queue: int


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """What is read of the sessions."""

    live: int
    starting: int
    closing: int
    orphans: int


@dataclass(frozen=True, slots=True)
class Load:
    """What is read of `GET /v1/status`."""

    tier: str
    pools: dict[str, PoolLoad]
    sessions: SessionCounts

    @property
    def is_quiet(self) -> bool:
        """Whether the daemon is neither working nor mending itself."""
        s = self.sessions
        return not (s.live or s.starting or s.closing) and all(
            pool.state == "running" and not pool.starting and not pool.queue
            for pool in self.pools.values()
        )


@dataclass(slots=True)
class Watcher:
    """Takes readings of one daemon.

    Attributes:
        folder: Its temporary folder, which nobody else uses.
    """

    daemon: Daemon
    folder: Path
    _last: Reading | None = field(default=None)

    async def settle(self, before: Reading | None = None) -> Reading:
        """Read once the daemon is quiet and, if it can be, as it was before.

        Args:
            before: What to wait for; None to wait for two readings alike.

        Returns:
            The last reading, after `SETTLE_SECONDS` whatever it is.

        Raises:
            TransportError: The daemon could not be asked.
            RefusedError: It did not say how it is.
        """
        wanted, reading = before, await self.read()
        with trio.move_on_after(SETTLE_SECONDS):
            while True:
                load = await self.wake()
                reading = await self.read()
                if load.is_quiet and wanted and not reading.exceeds(wanted):
                    break
                wanted = before or reading
                await trio.sleep(INTERVAL_SECONDS)
        return reading

    async def wake(self) -> Load:
        """Ask for verdicts, so that every verify worker is there, and for a status."""
        async with open_connection(self.daemon.url) as connection:
            body = {"items": [fresh_item() for _ in range(WAKING_ITEMS)]}
            with suppress(RefusedError):  # a fault; the next look asks again
                await ask(connection, "POST", "/v1/verify", body)
            return (await ask(connection, "GET", "/v1/status")).json(Load)

    async def read(self) -> Reading:
        """Take one reading."""
        async with open_connection(self.daemon.url) as connection:
            load = (await ask(connection, "GET", "/v1/status")).json(Load)
        return await trio.to_thread.run_sync(self._read, load)

    def _read(self, load: Load) -> Reading:
        daemon = self.daemon.process.pid
        reap(except_for=daemon)
        below = family()
        servers = [p.pid for p in below if is_server(p, daemon, load.tier)]
        return Reading(
            processes=len(below),
            daemon_descriptors=descriptors(daemon),
            pool_descriptors=total(descriptors, servers),
            daemon_memory=anonymous_bytes(daemon),
            pool_memory=total(anonymous_bytes, servers),
            daemon_threads=lasting_threads(daemon),
            folders=own_folders(self.folder),
            cgroups=own_cgroups(daemon),
            sessions=load.sessions.live
            + load.sessions.starting
            + load.sessions.closing,
            orphans=load.sessions.orphans,
        )


def family() -> list[psutil.Process]:
    """List everything below this process, orphans that it adopted included."""
    return list(psutil.Process().children(recursive=True))


def reap(except_for: int) -> None:
    """Bury adopted orphans, as the init of the host would."""
    for child in psutil.Process().children():
        if child.pid != except_for:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def is_server(process: psutil.Process, daemon: int, tier: str) -> bool:
    """Whether it is a launcher, a pool's init or a fork server, not a worker.

    In tier A workers, and all that they start, are a PID namespace deeper;
    elsewhere they are the fork server's children.
    """
    with suppress(psutil.Error, OSError):
        if tier == "A":
            return process.pid != daemon and depth(process.pid) <= depth(daemon) + 1
        generations = [parent.pid for parent in process.parents()]
        return daemon in generations[:2]
    return False


def depth(pid: int) -> int:
    """Count the PID namespaces that a process is in."""
    return len(status_line(pid, "NSpid:").split())


def status_line(pid: int, key: str) -> str:
    """Find one value in proc_pid_status(5); empty where there is none."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123  # read line by line
        for line in lines:
            if line.startswith(key):
                return line.removeprefix(key).strip()
    return ""


def anonymous_bytes(pid: int) -> int | None:
    """Read what is on a process's heap and stacks, swapped out or not."""
    with suppress(OSError, ValueError):
        lines = [status_line(pid, key) for key in ("RssAnon:", "VmSwap:")]
        return sum(1024 * int(line.removesuffix("kB")) for line in lines)
    return None


def descriptors(pid: int) -> int | None:
    """Count a process's open descriptors."""
    with suppress(psutil.Error):
        return int(psutil.Process(pid).num_fds())
    return None


def lasting_threads(pid: int) -> int | None:
    """Count a process's threads, without the ones that only wait to be reused."""
    with suppress(OSError):
        names = [read_name(task) for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(not name.startswith(IDLE_THREAD) for name in names)
    return None


def read_name(task: Path) -> str:
    """Read a thread's name; one that has just ended counts as idle."""
    try:
        return (task / "comm").read_text(errors="replace")
    except OSError:
        return IDLE_THREAD


def total(read: Callable[[int], int | None], pids: Iterable[int]) -> int | None:
    """Add up what is read of each; None when one is unreadable."""
    values = [read(pid) for pid in pids]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def own_folders(folder: Path) -> int:
    """Count the entries of a temporary folder, and of the folders in it."""
    count = 0
    for entry in entries(folder):
        count += 1 + sum(1 for _ in entries(entry))
    return count


def entries(folder: Path) -> Iterator[Path]:
    """List a folder; nothing where it is none, or is gone."""
    with suppress(OSError):
        yield from folder.iterdir()


def own_cgroups(daemon: int, root: Path = CGROUPS) -> int:
    """Count the control groups, in all hierarchies, named after a daemon's id."""
    number = str(daemon)
    folders = (Path(place) for place, _, _ in os.walk(root))
    return sum(number in re.split(r"\D+", folder.name) for folder in folders)
