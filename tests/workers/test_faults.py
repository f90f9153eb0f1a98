"""Starts that go wrong, for real: a named error, nothing left, and recovery."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import psutil
import pytest
import trio

from qedtrio.errors import WorkerLostError, WorkerStartError
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.faults import Fault, Faults
from qedtrio.workers.pool import Pool
from tests.conftest import direct_children, open_descriptors
from tests.workers.conftest import open_pool, plain_profile
from tests.workers.test_recycling import launchers, lease

pytestmark = pytest.mark.slow

FAIL = {
    Fault.START_FAILS: "did not answer",
    Fault.START_HANGS: "did not answer",
    Fault.NO_DESCRIPTORS: "open files",
    Fault.RIGHTS_LOST: "open files",
    Fault.NAMESPACE_LOST: "open files",
    Fault.ANSWER_LOST: "open files",
    Fault.NO_PIDFD: "open files",
    Fault.NO_MEMORY: "MemoryError",
    Fault.NO_FORK: "Errno",
}
"""Faults of one start, and what its lease says."""

KILL = (Fault.SERVER_DIES, Fault.LAUNCHER_DIES)
"""Faults that cost the fork server; the lease is served by the next one."""


@dataclass
class Faulty:
    """A pool without a reserve, so that each lease is one start."""

    pool: Pool
    faults: Faults

    def processes(self) -> int:
        """How many processes its launchers have below them."""
        return sum(len(p.children(recursive=True)) for p in launchers())

    async def settle(self, processes: int, descriptors: int) -> None:
        """Wait until nothing is left of a fault."""
        with trio.fail_after(10):
            while (  # noqa: ASYNC110  # nobody else waits for it
                self.pool.unburied()
                or len(direct_children()) != 1
                or self.processes() != processes
                or len(open_descriptors()) != descriptors
            ):
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_faulty(
    tier: Tier, engine: str, state_dir: str, start_seconds: float = 1.5
) -> AsyncIterator[Faulty]:
    """A running pool whose faults the test names."""
    faults = Faults()
    profile = replace(plain_profile(tier, engine), start_seconds=start_seconds)
    async with open_pool(profile, state_dir, ready=0, faults=faults) as pool:
        yield Faulty(pool, faults)


async def work(faulty: Faulty) -> None:
    """Lease a worker that answers, and kill it."""
    worker = await faulty.pool.lease(20)
    assert await worker.request({"op": "ping"}) == {"op": "done"}
    await worker.kill()


@pytest.mark.parametrize("tier", list(Tier))
async def test_each_fault_is_named_cleaned_up_and_survived(
    tier: Tier, host_tier: Tier, state_dir: str
) -> None:
    """On one pool, one fault after the other, with a healthy lease in between."""
    if not host_tier.reaches(tier):
        pytest.skip(f"this host reaches tier {host_tier} only")
    async with open_faulty(tier, "fork", state_dir) as faulty:
        await work(faulty)
        processes, descriptors = faulty.processes(), len(open_descriptors())
        await faulty.settle(processes, descriptors)
        for fault, said in FAIL.items():
            faulty.faults.next(fault)
            with trio.fail_after(20):
                with pytest.raises(WorkerStartError, match=said):
                    await faulty.pool.lease(15)
                await work(faulty)
                await faulty.settle(processes, descriptors)
        assert faulty.pool.statistics().restarts == 0
        for number, fault in enumerate(KILL, 1):
            faulty.faults.next(fault)
            with trio.fail_after(20):
                with suppress(WorkerLostError):  # the launcher died a little later
                    await work(faulty)
                await work(faulty)
                await faulty.settle(processes, descriptors)
            assert faulty.pool.statistics().restarts == number
        faulty.faults.next(Fault.WORKER_DIES)
        with trio.fail_after(20):
            worker = await faulty.pool.lease(15)
            with pytest.raises(WorkerLostError):
                await worker.receive()
            await worker.buried.wait()
            await work(faulty)
            await faulty.settle(processes, descriptors)


async def test_the_exec_engine_survives_faults_too(
    host_tier: Tier, state_dir: str
) -> None:
    """Each costs the start of one worker, and nothing else."""
    async with open_faulty(host_tier, "exec", state_dir, 2) as faulty:
        for fault in (Fault.START_FAILS, Fault.NO_PIDFD, *KILL):
            faulty.faults.next(fault)
            with trio.fail_after(20):
                with pytest.raises((WorkerStartError, WorkerLostError)):
                    await work(faulty)
                await work(faulty)
        with trio.fail_after(10):
            while direct_children() or faulty.pool.unburied():  # noqa: ASYNC110
                await trio.lowlevel.checkpoint()


async def test_a_hung_start_holds_up_nobody_else(
    host_tier: Tier, state_dir: str
) -> None:
    """The fork server goes on while one of its workers is not born."""
    async with open_faulty(host_tier, "fork", state_dir, 30) as faulty:
        faulty.faults.next(Fault.START_HANGS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(faulty.pool.lease, 60))
            with trio.fail_after(10):
                while not faulty.pool.statistics().starting:  # noqa: ASYNC110
                    await trio.lowlevel.checkpoint()
                while faulty.processes() < 3:  # noqa: ASYNC110
                    await trio.lowlevel.checkpoint()
                await work(faulty)
            nursery.cancel_scope.cancel()


async def test_a_stopped_fork_server_is_replaced(
    host_tier: Tier, state_dir: str
) -> None:
    """What does not answer within `start_seconds` is ended with its workers."""
    async with open_faulty(host_tier, "fork", state_dir) as faulty:
        with trio.fail_after(30):
            held = await lease(faulty.pool)
            (launcher,) = launchers()
            for process in launcher.children(recursive=True):
                if process.pid != held.pid:
                    os.kill(process.pid, signal.SIGSTOP)
            await work(faulty)
            await held.buried.wait()

            assert not psutil.pid_exists(launcher.pid)
            assert faulty.pool.statistics().restarts == 1


def test_draws_repeat_for_a_seed_and_keep_their_rates() -> None:
    """The same faults come again; a fault named by a test comes first."""
    rates = {Fault.START_FAILS: 0.25, Fault.NO_FORK: 0.25}
    first, second = (Faults(rates, 7) for _ in range(2))
    drawn = [first.draw() for _ in range(400)]

    assert drawn == [second.draw() for _ in range(400)]
    assert 60 < drawn.count(Fault.START_FAILS) < 140
    assert 140 < drawn.count(None) < 260
    first.next(Fault.WORKER_DIES)
    assert first.draw() is Fault.WORKER_DIES
    for wrong in ({Fault.NO_FORK: -0.1}, dict.fromkeys(Fault, 0.5)):
        with pytest.raises(ValueError, match="rate"):
            Faults(wrong)
