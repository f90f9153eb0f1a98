"""The daemon's folder: claimed, removed, and what becomes of a killed one's."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qedtrio.state import claim_folder, remove_folder, remove_stale_folders

HOLD = """
import sys
from qedtrio.state import claim_folder, remove_stale_folders
with claim_folder(sys.argv[1]) as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""

DEEP = """
import os
for _ in range(1200):
    os.mkdir("d", 0o700)
    os.chdir("d")
for name in (".0", ".1"):
    os.mkdir(name)
open(".2", "w").close()
os.symlink("/", "root")
os.mkdir("shut")
os.chmod("shut", 0)
"""


@pytest.fixture
def parent() -> Iterator[Path]:
    """A place for the folders of several daemons."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def hold(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that claimed a folder and lives."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_killed_owner_leaves_what_the_next_one_removes(parent: Path) -> None:
    """The living keep theirs, whoever asks and how often."""
    killed, stale = hold(parent)
    alive, held = hold(parent)
    with killed, alive, claim_folder(str(parent)) as own:
        (stale / "work-1").mkdir()
        (stale / "work-1" / "file").touch()
        assert remove_stale_folders(str(parent)) == 0
        killed.send_signal(signal.SIGKILL)
        killed.wait(10)

        assert remove_stale_folders(str(parent)) == 1
        assert {held, Path(own)} == set(parent.iterdir())
        alive.communicate(timeout=10)
    assert list(parent.iterdir()) == [], "each removes its own at its end"


def test_foreign_folders_are_left_alone(parent: Path) -> None:
    """Neither a name like ours, nor a link, nor a half-made claim is enough."""
    (parent / "qedtrio-mine").mkdir()
    (parent / "qedtrio-half").mkdir()
    (parent / "qedtrio-half" / "daemon.lock.new").touch()
    (parent / "elsewhere").mkdir()
    (parent / "elsewhere" / "daemon.lock").touch()
    (parent / "qedtrio-link").symlink_to(parent / "elsewhere")
    (parent / "qedtrio-trap").mkdir()
    (parent / "qedtrio-trap" / "daemon.lock").symlink_to(
        parent / "elsewhere" / "daemon.lock"
    )
    before = sorted(parent.rglob("*"))

    assert remove_stale_folders(str(parent)) == 0
    assert sorted(parent.rglob("*")) == before
    assert remove_stale_folders(str(parent / "nowhere")) == 0


def test_many_that_start_together_remove_it_once(parent: Path) -> None:
    """Nobody fails, nobody loses a folder that was claimed meanwhile."""
    killed, _ = hold(parent)
    with killed:
        killed.kill()
    removed = []

    def start() -> None:
        removed.append(remove_stale_folders(str(parent)))
        with claim_folder(str(parent)) as folder:
            removed.append(remove_stale_folders(str(parent)))
            assert Path(folder).is_dir()

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(start) for _ in range(8)]:
            done.result(20)

    assert sum(removed) == 1
    assert list(parent.iterdir()) == []


@pytest.mark.slow
def test_a_hostile_folder_is_removed(parent: Path) -> None:
    """Neither depth, names, links nor modes stop it, nor lead it elsewhere."""
    folder = parent / "work"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", DEEP], cwd=folder) as hostile:
        assert hostile.wait(20) == 0
    (folder / "shut").mkdir(mode=0)
    (folder / "link").symlink_to(parent)
    folder.chmod(0)

    assert remove_folder(str(folder))
    assert list(parent.iterdir()) == []
    assert remove_folder(str(folder)), "gone is gone"
