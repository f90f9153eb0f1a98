"""How a pool is supervised: reserve, back-off, refusal, recovery."""

import os
import resource
from dataclasses import replace

import psutil
import pytest
import trio

from qedtrio.errors import WorkerStartError
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.fork import ForkServer
from qedtrio.workers.pool import Pool, PoolState
from qedtrio.workers.worker import Worker
from tests.workers.conftest import open_pool, plain_profile


async def settle(pool: Pool, ready: int) -> None:
    """Wait until the reserve is full."""
    # The pool has no event for this, since nobody else waits for it.
    while pool.statistics().ready < ready or pool.statistics().starting:  # noqa: ASYNC110
        await trio.lowlevel.checkpoint()


def pids(pool: Pool) -> set[int]:
    """The process ids of a pool's workers."""
    return {worker.pid for worker in pool.statistics().workers}


async def test_the_reserve_is_refilled_after_a_lease(
    host_tier: Tier, state_dir: str
) -> None:
    """Opening a session takes a ready worker, and another takes its place."""
    async with open_pool(plain_profile(host_tier), state_dir, ready=2) as pool:
        with trio.fail_after(20):
            await settle(pool, 2)
            worker = await pool.lease(10)
            await settle(pool, 2)

            assert pool.statistics().busy == 1
            await worker.kill()
            assert pool.statistics().busy == 0


async def test_a_ready_worker_that_dies_is_replaced(
    host_tier: Tier, state_dir: str
) -> None:
    """Nobody is leased a dead worker."""
    async with open_pool(plain_profile(host_tier), state_dir, ready=1) as pool:
        with trio.fail_after(20):
            await settle(pool, 1)
            (described,) = pool.statistics().workers
            psutil.Process(described.pid).kill()
            while described.pid in pids(pool):  # noqa: ASYNC110  # as above
                await trio.lowlevel.checkpoint()
            worker = await pool.lease(10)

            assert worker.pid != described.pid
            assert await worker.request({"op": "ping"}) == {"op": "done"}


async def test_a_killed_launcher_is_replaced(host_tier: Tier, state_dir: str) -> None:
    """Its workers die with it, leases wait for the next one."""
    async with open_pool(plain_profile(host_tier), state_dir, ready=1) as pool:
        with trio.fail_after(30):
            worker = await pool.lease(10)
            for child in psutil.Process().children():
                child.kill()
            await worker.buried.wait()
            again = await pool.lease(20)

            assert await again.request({"op": "ping"}) == {"op": "done"}
            assert pool.statistics().restarts == 1
            assert worker.exit_status in (None, 9)


@pytest.mark.parametrize("engine", ["fork", "exec"])
@pytest.mark.parametrize(
    ("preload", "said"),
    [
        ("no_such_module", "no_such_module"),
        ("tests.workers.starts_a_thread", "threads"),
    ],
)
async def test_a_preload_that_fails_is_told_and_backed_off(
    engine: str, preload: str, said: str, state_dir: str
) -> None:
    """The reason reaches whoever leases; the pool does not loop hot.

    The exec engine imports in the worker, where threads do no harm.
    """
    profile = replace(plain_profile(Tier.C, engine), preload=(preload,))
    async with open_pool(profile, state_dir) as pool:
        with trio.fail_after(20):
            if (engine, said) == ("exec", "threads"):
                worker = await pool.lease(15)
                assert await worker.request({"op": "ping"}) == {"op": "done"}
                return
            with pytest.raises(WorkerStartError, match=said):
                await pool.lease(15)
            assert pool.statistics().restarts < 5
            if engine == "fork":
                assert pool.state is not PoolState.RUNNING
                assert said in await pool.check()


async def test_a_check_asks_a_real_worker(host_tier: Tier, state_dir: str) -> None:
    """Fine while one answers; a stopped one is found out and killed."""
    async with open_pool(plain_profile(host_tier), state_dir, ready=1) as pool:
        with trio.fail_after(20):
            await settle(pool, 1)
            assert await pool.check() == ""
            (described,) = pool.statistics().workers
            psutil.Process(described.pid).suspend()

            assert "did not answer" in await pool.check()
            assert not psutil.pid_exists(described.pid)


async def test_a_host_out_of_descriptors_recovers(
    host_tier: Tier, state_dir: str
) -> None:
    """A lease fails by name while there are none, and works again after."""
    async with open_pool(plain_profile(host_tier), state_dir, ready=0) as pool:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with trio.fail_after(20):
            used = os.dup(0)  # the lowest number that is free
            os.close(used)
            resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
            try:
                with pytest.raises(WorkerStartError, match="open files"):
                    await pool.lease(10)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            worker = await pool.lease(10)

            assert await worker.request({"op": "ping"}) == {"op": "done"}


async def test_a_defect_costs_a_pool_a_restart_and_nothing_else(
    host_tier: Tier, state_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that nobody foresaw must not reach the daemon's other parts."""
    spawn = ForkServer.spawn
    defects = [ValueError("a defect")]

    async def spawn_badly(self: ForkServer) -> Worker:
        worker = await spawn(self)
        if defects:
            raise defects.pop()
        return worker

    monkeypatch.setattr(ForkServer, "spawn", spawn_badly)
    async with open_pool(plain_profile(host_tier), state_dir, ready=0) as pool:
        with trio.fail_after(30):
            with pytest.raises(WorkerStartError, match="defect"):
                await pool.lease(20)
            while pool.failure:  # noqa: ASYNC110  # until the next engine serves
                await trio.lowlevel.checkpoint()
            worker = await pool.lease(20)
            assert await worker.request({"op": "ping"}) == {"op": "done"}
            await worker.kill()

        assert pool.statistics().restarts == 1
