"""Fixtures for all tests; the guard makes every test clean up after itself."""

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import trio

from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.probe import probe_host

GRACE_SECONDS = 3.0
"""How long what a test ended may take to disappear."""


def pytest_configure(config: pytest.Config) -> None:
    """Give this run a temporary folder of its own, which it can watch for leaks."""
    folder = tempfile.mkdtemp(prefix="qedtrio-tests-")
    Path(folder).chmod(0o711)  # workers may run as another user
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    tempfile.tempdir = os.environ["TMPDIR"] = folder


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Peel pytest-trio's own nursery off a failure, so that it reads plainly."""
    try:
        return (yield)
    except BaseExceptionGroup as group:
        trio_test = "_trio_test_runner_wrapped" in getattr(
            pyfuncitem.obj, "__dict__", {}
        )
        if trio_test and len(group.exceptions) == 1:
            raise group.exceptions[0] from None  # noqa: ASYNC123  # what it is for
        raise


def open_descriptors() -> dict[int, str]:
    """Descriptors of this process and what they are."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[int(entry.name)] = str(entry.readlink())
        except OSError:  # the one that lists the folder
            continue
    return found


def own_folders() -> set[Path]:
    """What the daemon could have left in the temporary folder."""
    return set(Path(tempfile.gettempdir()).glob("qedtrio-*"))


def direct_children() -> set[int]:
    """Processes started here; much quicker than a walk through all of /proc."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves a process, descriptor or temporary folder."""
    children = direct_children()
    descriptors = open_descriptors()
    folders = own_folders()

    yield

    problems = [f"process {p}" for p in still_alive(direct_children() - children)]
    if set(open_descriptors()) - set(descriptors):
        gc.collect()  # which is slow, and rarely needed
    left = {k: v for k, v in open_descriptors().items() if k not in descriptors}
    problems += [f"descriptor {number} {what}" for number, what in left.items()]
    problems += [f"folder {path}" for path in own_folders() - folders]
    assert not problems, f"left behind: {problems}"


def still_alive(pids: set[int]) -> list[psutil.Process]:
    """Wait a little for these and all below them; return who does not end."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found += [process, *process.children(recursive=True)]
    _, alive = psutil.wait_procs(found, timeout=GRACE_SECONDS)
    return list(alive)


@pytest.fixture
def state_dir() -> Iterator[str]:
    """A folder for what workers need on the host, empty again afterwards."""
    with tempfile.TemporaryDirectory(prefix="qedtrio-test-") as folder:
        Path(folder).chmod(0o711)

        yield folder

        left = os.listdir(folder)  # noqa: PTH208  # names are all the message needs
        assert not left, f"left in the state folder: {left}"


@pytest.fixture(scope="session")
def host_tier() -> Tier:
    """The strongest tier of this host."""

    async def probe() -> Tier:
        return (await probe_host()).tier

    return trio.run(probe)
