"""Floors, the daemon's process, and the deaths of many."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import click
import pytest
import trio

from qedtrio.cli.bench.daemon import Daemon, kill_group, open_daemon
from qedtrio.cli.bench.floors import measure_fork, measure_worker_round_trip
from qedtrio.cli.bench.memory import private_bytes
from qedtrio.cli.bench.shutdown import end_and_wait
from qedtrio.cli.calls import RefusedError

READY = "print('ready native http://127.0.0.1:1', flush=True);"
WAIT = "import signal; signal.sigwait({signal.SIGTERM})"
BLOCK = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]);"


def python(program: str) -> tuple[str, ...]:
    """The command that runs `program`."""
    return (sys.executable, "-c", program)


async def test_a_daemon_is_told_to_end_and_waited_for() -> None:
    """Leaving the block sends SIGTERM; the exit code is the daemon's own."""
    with trio.fail_after(10):
        async with open_daemon(*python(BLOCK + READY + WAIT)) as daemon:
            assert daemon.url == "http://127.0.0.1:1"
            assert daemon.cpu_seconds() >= 0

    assert daemon.process.returncode == 0


async def test_a_daemon_and_its_family_die_with_a_failure() -> None:
    """An error in the block kills the whole process group at once."""
    program = (
        BLOCK + "import os; child = os.fork(); r, w = os.pipe();"
        "print(f'ready native {child}', flush=True) if child else 0;" + WAIT
    )
    seen: list[tuple[Daemon, int]] = []

    async def fail_inside() -> None:
        async with open_daemon(*python(program)) as daemon:
            seen.append((daemon, os.pidfd_open(int(daemon.url))))
            raise ValueError

    with trio.fail_after(10):
        with pytest.RaisesGroup(ValueError):
            await fail_inside()

        daemon, pidfd = seen[0]
        await trio.lowlevel.wait_readable(pidfd)
    os.close(pidfd)
    assert daemon.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "program",
    ["", "import sys; sys.exit(2)", "print('hello', flush=True);" + WAIT],
    ids=["silent", "refused", "chatty"],
)
async def test_a_daemon_that_is_not_ready_ends_the_command(program: str) -> None:
    """What it said instead is part of the sentence, and it is killed."""
    with (
        trio.fail_after(10),
        pytest.RaisesGroup(
            pytest.RaisesExc(click.ClickException, match="did not become ready")
        ),
    ):
        async with open_daemon(*python(program)):
            pass


async def test_fork_floor_has_samples() -> None:
    """A bare fork is measured in a process of its own."""
    with trio.fail_after(10):
        measured = await measure_fork(["json"], seconds=0.05)

    assert (measured.scenario, measured.clients) == ("fork", 1)
    assert measured.requests > 0
    assert measured.p50_ms is not None
    assert measured.p50_ms > 0.01


async def test_fork_floor_with_a_missing_module_is_refused() -> None:
    """A preload that cannot be imported is told, not measured without."""
    with trio.fail_after(10), pytest.raises(RefusedError, match="no_such_module"):
        await measure_fork(["no_such_module"], seconds=0.05)


async def test_a_worker_round_trip_counts_its_pings() -> None:
    """Each sample is one ping; the warm-up is not among them."""

    class Counting:
        pings = 0

        async def ping(self) -> None:
            self.pings += 1
            await trio.lowlevel.checkpoint()

    pinger = Counting()
    with trio.fail_after(10):
        measured = await measure_worker_round_trip(pinger, seconds=0.02)

    assert measured.requests == pinger.pings - 5


@asynccontextmanager
async def open_family(program: str) -> AsyncIterator[tuple[trio.Process, int]]:
    """Run a process that prints the id of its child; gives both."""
    run = partial(
        trio.run_process,
        python(program),
        stdout=subprocess.PIPE,
        check=False,
        start_new_session=True,
        deliver_cancel=kill_group,
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        yield process, int(await process.stdout.receive_some(64))
        nursery.cancel_scope.cancel()


async def test_the_end_is_when_the_last_descendant_has_died() -> None:
    """A daemon that takes its worker with it leaves no survivor."""
    program = (
        BLOCK + "import os; child = os.fork();\n"
        "if child: print(child, flush=True)\n"
        "signal.sigwait({signal.SIGTERM})\n"
        "if child: os.kill(child, signal.SIGTERM); os.waitpid(child, 0)\n"
    )
    with trio.fail_after(10):
        async with open_family(program) as (process, child):
            seconds, survivors = await end_and_wait(process, [process.pid, child])

    assert survivors == 0
    assert 0 < seconds < 10
    assert private_bytes(child) is None


async def test_a_survivor_is_counted_and_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that outlives its daemon is a finding, and then it is ended."""
    monkeypatch.setattr("qedtrio.cli.bench.shutdown.DEATH_SECONDS", 0.3)
    program = (
        BLOCK + "import os; child = os.fork();\n"
        "if child: print(child, flush=True); signal.sigwait({signal.SIGTERM})\n"
        "else: os.setsid(); signal.pause()\n"
    )
    with trio.fail_after(10):
        async with open_family(program) as (process, child):
            pidfd = os.pidfd_open(child)
            _, survivors = await end_and_wait(process, [process.pid, child])
            await trio.lowlevel.wait_readable(pidfd)
            os.close(pidfd)

    assert survivors == 1
    assert process.returncode == 0


def test_private_memory_is_read_in_bytes() -> None:
    """This very process has some megabytes of its own."""
    size = private_bytes(os.getpid())

    assert size is not None
    assert 2**20 < size < 2**34
