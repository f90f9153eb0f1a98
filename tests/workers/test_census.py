"""Whose process is whose, and the size of a folder that fights back."""

import os
from pathlib import Path

import pytest

from qedtrio.workers.census import (
    Process,
    Subject,
    Usage,
    precise_bytes,
    read_processes,
    survey,
)
from qedtrio.workers.folders import folder_bytes
from qedtrio.workers.memory import MemoryGate, free_bytes
from qedtrio.workers.watched import count_oom_kills


def process(pid: int, parent: int, group: int = 0) -> Process:
    """A process with one thread of 10 bytes and 100 ticks."""
    return Process(pid, parent, group or pid, 100, 1, 10)


def test_every_process_has_its_owner() -> None:
    """Descendants, orphans in a namespace, and who stayed in the group."""
    processes = [
        process(1, 0),
        process(10, 1),  # a first process
        process(11, 2),  # its worker
        process(12, 11),
        process(13, 12, 99),  # left the group
        process(14, 10, 98),  # an orphan
        process(15, 14),
        process(20, 2),  # a worker without namespace
        process(21, 2, 20),  # an orphan in its group
        process(22, 21, 97),
        process(30, 2),  # nobody's
    ]
    subjects = [Subject(pid=11, first_pid=10), Subject(pid=20, first_pid=None)]

    usages = survey(subjects, processes)

    assert sorted(usages[11].residents) == [11, 12, 13, 14, 15]
    assert sorted(usages[20].residents) == [20, 21, 22]
    assert usages[11].cpu_seconds == 6 * 100 / os.sysconf("SC_CLK_TCK")
    assert (usages[20].threads, usages[20].resident_bytes) == (3, 30)


def test_a_circle_of_parents_ends() -> None:
    """Process ids are reused while /proc is read."""
    usages = survey(
        [Subject(pid=9, first_pid=None)], [process(2, 3), process(3, 2), process(3, 3)]
    )

    assert usages[9].residents == {}


def test_the_census_finds_this_process() -> None:
    """Read from the real /proc; one that is gone is left out of the memory."""
    (own,) = [p for p in read_processes() if p.pid == os.getpid()]
    usage = Usage(leader=own.pid, residents={own.pid: own.resident_bytes, 2**22: 5})

    assert own.parent == os.getppid()
    assert own.group == os.getpgrp()
    assert 0 < precise_bytes(usage) < 2 * own.resident_bytes


def test_a_name_cannot_forge_its_line(tmp_path: Path) -> None:
    """A process may call itself anything, brackets and spaces included."""
    (tmp_path / "7").mkdir()
    fields = ["S", "1", "7", *["0"] * 8, "5", "6", "7", "8", "0", "0", "3", "0", "0"]
    (tmp_path / "7/stat").write_text(f"7 (a) R 9 (b)) {' '.join(fields)} 1000 2 0\n")

    assert list(read_processes(str(tmp_path))) == [
        Process(7, 1, 7, 26, 3, 2 * os.sysconf("SC_PAGE_SIZE"))
    ]


def test_a_folder_is_counted_once_and_without_its_links(tmp_path: Path) -> None:
    """Links lead nowhere, second names cost an entry, empty files do too."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_bytes(b"x" * 100_000)
    size = folder_bytes(str(tmp_path), 10**9)
    os.link(tmp_path / "a/file", tmp_path / "a/again")
    (tmp_path / "root").symlink_to("/usr")
    (tmp_path / "empty").touch()

    assert 100_000 < size < 130_000
    assert folder_bytes(str(tmp_path), 10**9) <= size + 3 * 512 + 8192
    assert folder_bytes(str(tmp_path / "gone"), 10**9) == 0


@pytest.mark.parametrize("hide", ["deep", "closed"])
def test_what_cannot_be_counted_counts_as_too_much(tmp_path: Path, hide: str) -> None:
    """Else it would be the place to hide things."""
    if hide == "closed" and os.geteuid() == 0:
        pytest.skip("root may enter every folder")
    here = os.open(tmp_path, os.O_RDONLY)
    descriptors = [here]
    for _ in range(150 if hide == "deep" else 1):
        os.mkdir("d", 0o700 if hide == "deep" else 0o000, dir_fd=here)
        if hide == "deep":
            here = os.open("d", os.O_RDONLY, dir_fd=here)
            descriptors.append(here)
    for descriptor in descriptors:
        os.close(descriptor)

    assert folder_bytes(str(tmp_path), 10**9) > 10**9


def test_the_host_is_read_as_it_is(tmp_path: Path) -> None:
    """A host that does not tell refuses nothing."""
    (tmp_path / "vmstat").write_text("pgfault 1\noom_kill 12\nlast 3\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   7 kB\n")

    assert count_oom_kills(str(tmp_path / "vmstat")) == 12
    assert count_oom_kills(str(tmp_path / "none")) == 0
    assert free_bytes(str(tmp_path / "meminfo")) == 7 * 1024
    assert free_bytes(str(tmp_path / "none")) == float("inf")
    assert 0 < free_bytes() < float("inf")
    assert MemoryGate(0, 0).total_bytes > 0
