"""What every worker's processes use, from one pass over /proc.

A worker's processes are its descendants, those of its namespace's first
process, which orphans in it come to, and whoever is in its process group.
Cheap figures come first. Precise memory is asked for only where the cheap
upper bound says that it might matter: forked children share the preload, and
a plain sum of resident sizes would blame the innocent.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Process", "Subject", "Usage", "precise_bytes", "read_processes", "survey"]

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc/PID/stat (proc_pid_stat(5))."""

    pid: int
    parent: int
    group: int
    cpu_ticks: int
    threads: int
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whose use is surveyed.

    Attributes:
        pid: The worker, which leads its process group.
        first_pid: First process of its namespace, if it has one.
    """

    pid: int
    first_pid: int | None


@dataclass(slots=True, kw_only=True)
class Usage:
    """What one worker and all that it started use.

    Attributes:
        leader: The worker's process id.
        residents: Resident bytes of each of its processes, by process id; its
            namespace's first is not among them.
        threads: Of all of them.
        cpu_seconds: Of the living, and of children that somebody waited for.
    """

    leader: int
    residents: dict[int, int] = field(default_factory=dict)
    threads: int = 0
    cpu_seconds: float = 0.0

    @property
    def resident_bytes(self) -> int:
        """Sum of resident sizes: never less than what is used, but for swap."""
        return sum(self.residents.values())


def read_processes(proc: str = "/proc") -> Iterator[Process]:
    """Read every process of the host; those that end meanwhile are left out."""
    for name in os.listdir(proc):  # noqa: PTH208  # in the hundreds, every second
        if name.isdigit() and (line := _read(f"{proc}/{name}/stat")):
            # The name is in brackets and may hold anything, brackets too.
            f = line.rpartition(b")")[2].split()
            yield Process(
                pid=int(name),
                parent=int(f[1]),
                group=int(f[2]),
                cpu_ticks=int(f[11]) + int(f[12]) + int(f[13]) + int(f[14]),
                threads=int(f[17]),
                resident_bytes=int(f[21]) * PAGE_BYTES,
            )


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):  # it ended, or /proc hides it
        return b""
    try:
        return os.read(descriptor, 4096)
    except ProcessLookupError:
        return b""
    finally:
        os.close(descriptor)


def survey(
    subjects: Sequence[Subject], processes: Sequence[Process]
) -> dict[int, Usage]:
    """Add up what belongs to each subject.

    Returns:
        By the subject's `pid`; one whose processes are all gone uses nothing.
    """
    usages = {subject.pid: Usage(leader=subject.pid) for subject in subjects}
    firsts = {s.first_pid: s.pid for s in subjects if s.first_pid is not None}
    owners = _owners(firsts, usages, {p.pid: p for p in processes})
    for process in processes:
        if (owner := owners.get(process.pid)) is None:
            continue
        usage = usages[owner]
        usage.cpu_seconds += process.cpu_ticks / TICKS
        if process.pid not in firsts:
            usage.residents[process.pid] = process.resident_bytes
            usage.threads += process.threads
    return usages


def _owners(
    firsts: Mapping[int, int],
    usages: Mapping[int, Usage],
    processes: Mapping[int, Process],
) -> dict[int, int | None]:
    """Find whose descendant each process is, or else of whose group."""
    owners: dict[int, int | None] = {**firsts, **{pid: pid for pid in usages}}
    for process in processes.values():
        line = []
        above: Process | None = process
        while above is not None and above.pid not in owners:
            line.append(above)
            owners[above.pid] = None  # also ends a circle, if pids are reused
            above = processes.get(above.parent)
        owner = owners[above.pid] if above is not None else None
        for member in reversed(line):
            if owner is None and member.group in usages:
                owner = member.group
            owners[member.pid] = owner
    return owners


def precise_bytes(usage: Usage) -> int:
    """Measure what the processes really occupy, shared pages divided (PSS).

    Where the kernel does not let us measure, what a child could share with
    its worker is taken for shared: too little is found rather than too much.
    """
    sizes = [_proportional_bytes(pid) for pid in usage.residents]
    if None not in sizes:
        return sum(size for size in sizes if size is not None)
    shared = usage.residents.get(usage.leader, 0)
    return shared + sum(max(0, size - shared) for size in usage.residents.values())


def _proportional_bytes(pid: int) -> int | None:
    """PSS and swap of a process; 0 when it is gone, None when it is hidden."""
    total = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as lines:  # noqa: PTH123
            for line in lines:
                if line.startswith((b"Pss:", b"SwapPss:")):
                    total += int(line.split()[1]) * 1024
    except PermissionError:
        return None
    except OSError:
        return 0
    return total
