"""Control groups (v2) for workers, where a part of the hierarchy is delegated.

    <place>/daemon     the daemon itself: a group with children holds no processes
    <place>/worker-N   one leased worker and all that it starts

Nothing depends on them: without, or with fewer controllers, resource limits
and the daemon's watch do the same more slowly.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst.
"""

import os
import select
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Cgroup", "Cgroups", "describe_place", "find_place", "memory_ceiling"]

CONTROLLERS = ("memory", "pids", "cpu")
DAEMON, WORKER = "daemon", "worker-"
FILESYSTEM = "cgroup2"
SWEEP_SECONDS = 1.0
"""What was killed takes less to die."""


def find_place(setting: str = "auto", proc: str = "/proc/self") -> Path | None:
    """Find where groups may be made; None where that is nowhere.

    Args:
        setting: `daemon.cgroup`: auto, off, or a path.
        proc: Entry of the process in /proc.
    """
    if setting == "off":
        return None
    if setting != "auto":
        return Path(setting)
    mount, own = _mount_point(proc), _own_group(proc)
    if not mount or own in {"", "/"}:
        return None  # the whole host's groups are not ours to arrange
    place = Path(mount) / own.lstrip("/")
    if place.name == DAEMON and os.access(place.parent, os.W_OK):
        place = place.parent  # as with systemd's DelegateSubgroup=, or after a restart
    return place if os.access(place / "cgroup.procs", os.W_OK) else None


def describe_place(setting: str = "auto") -> tuple[bool, str, str]:
    """Tell `check-host` of control groups: whether well, detail, remedy."""
    remedy = "run as a systemd service with Delegate=yes, or name daemon.cgroup"
    place = find_place(setting)
    if place is None:
        return False, "no group of the v2 hierarchy is delegated", remedy
    have = set(_words(place / "cgroup.controllers"))
    if missing := [name for name in CONTROLLERS if name not in have]:
        return False, f"{place} lacks {', '.join(missing)}", remedy
    return True, str(place), ""


def _mount_point(proc: str) -> str:
    for line in _lines(Path(proc) / "mountinfo"):
        mount, _, source = line.partition(" - ")
        if source.startswith(f"{FILESYSTEM} "):
            return mount.split()[4]
    return ""


def _own_group(proc: str) -> str:
    for line in _lines(Path(proc) / "cgroup"):
        if line.startswith("0::"):
            return line[3:]
    return ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _number(path: Path) -> int | None:
    words = _words(path)
    return int(words[0]) if words and words[0].isdigit() else None


def memory_ceiling(proc: str = "/proc") -> int:
    """The memory that this process could have: the host's or its group's."""
    found = [1024 * int(line.split()[1]) for line in _lines(Path(proc) / "meminfo")[:1]]
    mount = Path(_mount_point(f"{proc}/self"))
    group = mount / _own_group(f"{proc}/self").lstrip("/")
    while mount != Path() and group != mount:
        if (limit := _number(group / "memory.max")) is not None:
            found.append(limit)
        group = group.parent
    return min(found, default=2**40)


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One worker's group.

    Attributes:
        path: Its folder.
    """

    path: Path

    def limit(self, limits: Mapping[str, float]) -> None:
        """Set what the controllers that are there can hold.

        Args:
            limits: Keys of `config.Limits`.
        """
        # The disk of tier A is memory of the group, and is bounded by itself.
        memory = limits.get("memory_bytes", 0) + limits.get("disk_bytes", 0)
        values = {
            "memory.max": int(memory) if "memory_bytes" in limits else None,
            "memory.swap.max": 0,
            "memory.oom.group": 1,
            "pids.max": int(limits["processes"]) if "processes" in limits else None,
        }
        for name, value in values.items():
            if value is not None and (self.path / name).exists():
                with suppress(OSError):
                    (self.path / name).write_text(str(value))

    def add(self, pid: int) -> None:
        """Move a process in; what it starts from now on is born here.

        Raises:
            OSError: It has ended, or may not be moved.
        """
        (self.path / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        """Kill every process in it, however it hides (kernel 5.14 or later)."""
        with suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")

    def is_populated(self) -> bool:
        """Whether any process lives in it."""
        return "populated 1" in _lines(self.path / "cgroup.events")

    def wait_empty(self, seconds: float) -> bool:
        """Block until no process lives in it; whether that came in time."""
        try:
            with (self.path / "cgroup.events").open("rb", buffering=0) as events:
                changed = select.poll()
                changed.register(events, select.POLLPRI)
                while b"populated 1" in events.read(4096):
                    if not changed.poll(seconds * 1000):
                        return False
                    events.seek(0)
        except OSError:
            return True  # there is no such group any more
        return True

    def oom_kills(self) -> int:
        """How often the kernel killed in it for reaching its memory limit."""
        return self._figure("memory.events", "oom_kill")

    def cpu_seconds(self) -> float:
        """Processor time of all that ever ran in it."""
        return self._figure("cpu.stat", "usage_usec") / 1e6

    def _figure(self, name: str, key: str) -> int:
        for line in _lines(self.path / name):
            if line.startswith(f"{key} "):
                return int(line.split()[1])
        return 0

    def remove(self) -> bool:
        """Remove it, once empty; whether it is gone."""
        try:
            self.path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


@dataclass(slots=True)
class Cgroups:
    """Makes the workers' groups below one place.

    Args:
        place: Folder of the v2 hierarchy that is ours alone.
    """

    place: Path
    _numbers: int = field(default=0, init=False)

    def settle(self) -> None:
        """Move everything of this place into a leaf, and enable controllers.

        Kills and removes what a daemon before us left behind.

        Raises:
            OSError: The place is not delegated after all.
        """
        self.sweep()
        leaf = self.place / DAEMON
        leaf.mkdir(exist_ok=True)
        for pid in _words(self.place / "cgroup.procs"):
            with suppress(ProcessLookupError):
                (leaf / "cgroup.procs").write_text(pid)
        have = _words(self.place / "cgroup.controllers")
        for name in CONTROLLERS:
            if name in have:
                with suppress(OSError):  # then limits and the watch must do
                    (self.place / "cgroup.subtree_control").write_text(f"+{name}")

    def sweep(self) -> int:
        """Kill and remove every worker's group; how many are left.

        Blocks until they are dead, which is for a start and an end only.
        """
        groups = [Cgroup(path) for path in self.place.glob(f"{WORKER}*")]
        for group in groups:
            group.kill()
        left = [g for g in groups if not (g.wait_empty(SWEEP_SECONDS) and g.remove())]
        return len(left)

    def create(self, limits: Mapping[str, float]) -> Cgroup:
        """Make a worker's group.

        Raises:
            OSError: There is no room for one.
        """
        self._numbers += 1
        group = Cgroup(self.place / f"{WORKER}{os.getpid()}-{self._numbers}")
        group.path.mkdir()
        group.limit(limits)
        return group
