"""Control groups, in a group of the test's own where the host has the hierarchy."""

import os
import subprocess  # for its constants
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from qedtrio.sandbox.cgroups import (
    Cgroups,
    describe_place,
    find_place,
    memory_ceiling,
)
from qedtrio.sandbox.tiers import Tier
from qedtrio.sessions.model import RunRequest, SessionOptions
from tests.sessions.conftest import open_sessions

MIB = 1024 * 1024


def hierarchy() -> Path | None:
    """Where the v2 hierarchy is mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return Path(line.split()[4])
    return None


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty group of the test's own, which must be empty afterwards."""
    above = hierarchy()
    if above is None or not os.access(above, os.W_OK):
        pytest.skip("no writable v2 hierarchy of control groups")
    path = above / f"qedtrio-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made: {error}")
    yield path
    left = names(path)
    for name in left:
        (path / name).rmdir()
    path.rmdir()
    assert set(left) <= {"daemon"}


async def test_a_group_kills_what_hides_and_is_removed(place: Path) -> None:
    """A process that left the session of its parent dies with the group."""
    group = Cgroups(place).create({"memory_bytes": 256 * MIB, "processes": 9})
    command = 'echo $$ > "$1"/cgroup.procs; setsid sleep 60 & echo in; sleep 60'
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            child = await nursery.start(
                partial(
                    trio.run_process,
                    ["sh", "-c", command, "sh", str(group.path)],
                    stdout=subprocess.PIPE,
                    check=False,
                )
            )
            assert await child.stdout.receive_some() == b"in\n"
            assert group.is_populated()
            assert not group.remove()
            assert group.cpu_seconds() > 0
            group.kill()

    assert group.wait_empty(10)
    assert group.remove()
    assert group.remove(), "idempotent"
    assert group.wait_empty(10), "what is gone is empty"


async def test_each_session_has_a_group_that_ends_with_it(
    place: Path, host_tier: Tier, state_dir: str
) -> None:
    """The worker is in it before its lease; at its burial it is gone."""
    async with open_sessions(host_tier, state_dir) as (sessions, pool):
        pool.cgroups = Cgroups(place)
        pool.cgroups.settle()
        with trio.fail_after(30):
            await sessions.create("s", SessionOptions())
            (worker,) = pool.leased()
            (name,) = set(names(place)) - {"daemon"}
            assert str(worker.pid) in (place / name / "cgroup.procs").read_text()
            await sessions.run("s", RunRequest(code="import os; os.fork()"))
            await sessions.close("s")

        assert names(place) == ["daemon"]


async def test_what_a_killed_daemon_left_is_removed_by_the_next(place: Path) -> None:
    """Groups of workers that are not ours are killed and removed at the start."""
    group = Cgroups(place).create({})
    command = 'echo $$ > "$1"/cgroup.procs; echo in; exec sleep 60'
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            child = await nursery.start(
                partial(
                    trio.run_process,
                    ["sh", "-c", command, "sh", str(group.path)],
                    stdout=subprocess.PIPE,
                    check=False,
                )
            )
            assert await child.stdout.receive_some() == b"in\n"
            Cgroups(place).settle()

    assert names(place) == ["daemon"]


def names(place: Path) -> list[str]:
    """The groups below."""
    return sorted(path.name for path in place.iterdir() if path.is_dir())


async def test_a_group_holds_its_memory(
    place: Path, host_tier: Tier, state_dir: str
) -> None:
    """The kernel's kill inside a group is told as `memory_exceeded`."""
    if "memory" not in (place / "cgroup.controllers").read_text().split():
        pytest.skip("no memory controller in the v2 hierarchy")
    async with open_sessions(host_tier, state_dir, watch_seconds=60) as (
        sessions,
        pool,
    ):
        pool.cgroups = Cgroups(place)
        pool.cgroups.settle()
        limits = {"memory_bytes": 300 * MIB}
        code = "import os\nfor _ in range(4): os.fork()\nx = b'x' * (200 << 20)"
        with trio.fail_after(30):
            await sessions.create("s", SessionOptions(limits=limits))
            answer = await sessions.run("s", RunRequest(code=code))

    assert answer.status == "memory_exceeded"


@pytest.mark.parametrize(
    ("group", "found"),
    [
        ("/unit.service", "unit.service"),
        ("/unit.service/daemon", "unit.service"),
        ("/", None),
        ("/not-there", None),
    ],
)
def test_only_a_group_of_our_own_is_taken(
    tmp_path: Path, group: str, found: str | None
) -> None:
    """Never the root of the hierarchy, which is the whole host's."""
    for name in ("unit.service", "unit.service/daemon"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    (tmp_path / "cgroup").write_text(f"1:cpu:/x\n0::{group}\n")
    (tmp_path / "mountinfo").write_text(
        f"31 23 0:28 / {tmp_path} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
    )

    place = find_place(proc=str(tmp_path))

    assert place == (tmp_path / found if found else None)
    assert find_place("off") is None
    assert find_place("/given") == Path("/given")


def test_the_host_is_told_what_it_lacks(tmp_path: Path) -> None:
    """A place without controllers is named, with a remedy."""
    (tmp_path / "cgroup.controllers").write_text("cpu pids\n")

    ok, detail, remedy = describe_place(str(tmp_path))

    assert (ok, detail) == (False, f"{tmp_path} lacks memory")
    assert "Delegate=yes" in remedy


def test_the_ceiling_is_the_smallest_limit_above_us(tmp_path: Path) -> None:
    """The group's limit counts, and so does that of the groups above it."""
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal:       1000 kB\nMemFree: 1 kB\n")
    (tmp_path / "self/cgroup").write_text("0::/a/b\n")
    (tmp_path / "self/mountinfo").write_text(
        f"31 23 0:28 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    )
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/memory.max").write_text("max\n")

    assert memory_ceiling(str(tmp_path)) == 1000 * 1024
    (tmp_path / "a/memory.max").write_text("4096\n")
    assert memory_ceiling(str(tmp_path)) == 4096
