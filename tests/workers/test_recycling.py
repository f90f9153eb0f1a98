"""Worn fork servers are replaced, and nobody who has a worker notices."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import trio

from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.generation import Wear
from qedtrio.workers.pool import Pool, PoolState, PoolStatistics
from qedtrio.workers.succession import MOST_GENERATIONS
from qedtrio.workers.worker import Worker
from tests.conftest import direct_children
from tests.workers.conftest import open_pool, plain_profile
from tests.workers.test_worker_contract import LEASE, run


async def reach(pool: Pool, holds: Callable[[PoolStatistics], bool]) -> PoolStatistics:
    """Wait until the pool's statistics hold what is asked."""
    # The pool has no event for this, since nobody else waits for it.
    while not holds(found := pool.statistics()):  # noqa: ASYNC110
        await trio.lowlevel.checkpoint()
    return found


async def lease(pool: Pool, seed: int | None = 1) -> Worker:
    """Take a worker that is ready to run."""
    worker = await pool.lease(20)
    await worker.request({**LEASE, "seed": seed})
    return worker


async def value(worker: Worker, code: str) -> str:
    """The repr of an expression's value in a worker."""
    reply, _, _ = await run(worker, code)
    return str(reply["result"])


def launchers() -> list[psutil.Process]:
    """The launchers of this process, oldest first."""
    found = map(psutil.Process, direct_children())
    return sorted(found, key=lambda process: (process.create_time(), process.pid))


async def wear_out(pool: Pool) -> Worker:
    """Lease the first workers of a pool of two forks, until it has a successor."""
    kept = await lease(pool)
    recycles = pool.statistics().recycles
    await reach(pool, lambda now: now.recycles > recycles)
    return kept


def launcher_of(worker: Worker) -> psutil.Process:
    """The launcher whose fork server made a worker."""
    (found,) = set(launchers()) & set(psutil.Process(worker.pid).parents())
    return found


async def lease_beside(pool: Pool, old: Worker) -> Worker:
    """Take a worker of another generation than `old`'s."""
    while True:
        worker = await lease(pool)
        if launcher_of(worker) != launcher_of(old):
            return worker
        await worker.kill()


pytestmark = pytest.mark.slow
TWO_FORKS = Wear(forks=2)


@pytest.mark.parametrize("tier", [Tier.A, Tier.C])
async def test_a_live_worker_does_not_notice_a_recycle(
    tier: Tier, host_tier: Tier, state_dir: str
) -> None:
    """The old server ends with its last worker; the new one hashes differently."""
    tier = tier if host_tier.reaches(tier) else host_tier
    async with open_pool(plain_profile(tier), state_dir, wear=TWO_FORKS) as pool:
        with trio.fail_after(30):
            first = await lease(pool)
            await run(first, "x = 41")
            second = await lease_beside(pool, first)
            hashes = [await value(w, "hash('x')") for w in (first, second)]

            assert await value(first, "x + 1") == "42"
            assert pool.statistics().generations > 1
            assert hashes[0] != hashes[1]
            await first.kill()
            await reach(pool, lambda now: now.generations == 1 or now.recycles > 1)
            assert await value(second, "1 + 1") == "2"


async def test_leases_never_wait_for_a_recycle(host_tier: Tier, state_dir: str) -> None:
    """The reserve stays until the successor's workers take its place."""
    profile = plain_profile(host_tier)
    async with open_pool(profile, state_dir, ready=2, wear=TWO_FORKS) as pool:
        with trio.fail_after(30):
            while pool.statistics().recycles < 3:
                worker = await pool.lease(5)
                assert await worker.request({"op": "ping"}) == {"op": "done"}
                assert pool.state is PoolState.RUNNING
                await worker.kill()


async def test_generations_are_bounded_by_waiting(
    host_tier: Tier, state_dir: str
) -> None:
    """While old ones cannot end, the newest goes on beyond its limit."""
    profile, wear = plain_profile(host_tier), Wear(forks=1)
    async with open_pool(profile, state_dir, ready=1, wear=wear) as pool:
        with trio.fail_after(30):
            held = []
            for _ in range(8):
                held.append(await pool.lease(10))
                assert pool.statistics().generations <= MOST_GENERATIONS
            await reach(pool, lambda now: now.generations == MOST_GENERATIONS)
            recycles = pool.statistics().recycles
            for worker in held:
                await worker.kill()
            await reach(pool, lambda now: now.recycles > recycles)


async def test_a_successor_that_fails_changes_nothing(state_dir: str) -> None:
    """The old server goes on, and the next attempt comes by itself."""
    profile = replace(plain_profile(Tier.C), preload=("tests.workers.fails_when_told",))
    told = Path(state_dir) / "fail"
    async with open_pool(profile, state_dir, wear=TWO_FORKS) as pool:
        told.touch()
        with trio.fail_after(30):
            before = direct_children()
            kept = await lease(pool)
            tried: set[int] = set()
            while len(tried) < 2:  # noqa: ASYNC110  # nobody else waits for it
                tried |= direct_children() - before
                await trio.lowlevel.checkpoint()
            worker = await pool.lease(10)

            assert await worker.request({"op": "ping"}) == {"op": "done"}
            assert (pool.state, pool.failure) == (PoolState.RUNNING, "")
            assert pool.statistics().recycles == 0
            told.unlink()
            await reach(pool, lambda now: now.recycles > 0)
            assert await kept.request({"op": "ping"}) == {"op": "done"}


async def test_a_crash_of_either_generation_spares_the_other(
    host_tier: Tier, state_dir: str
) -> None:
    """What dies takes its own workers along, and no others."""
    profile = plain_profile(host_tier)
    async with open_pool(profile, state_dir, wear=TWO_FORKS) as pool:
        with trio.fail_after(40):
            old = await wear_out(pool)
            new = await lease_beside(pool, old)
            launcher_of(old).kill()
            await old.buried.wait()

            assert await value(new, "1 + 1") == "2"
            assert pool.statistics().restarts == 0
            await reach(pool, lambda now: now.recycles > 1)
            launchers()[-1].kill()
            await reach(pool, lambda now: now.restarts == 1)
            assert await value(new, "1 + 1") == "2"
            again = await pool.lease(20)
            assert await again.request({"op": "ping"}) == {"op": "done"}


@pytest.mark.parametrize("beginning", [True, False])
async def test_a_pool_can_end_in_the_middle_of_a_recycle(
    host_tier: Tier, state_dir: str, beginning: bool
) -> None:
    """With the successor on its way, and with the old one on its way out."""
    async with open_pool(plain_profile(host_tier), state_dir, wear=TWO_FORKS) as pool:
        with trio.fail_after(20):
            await lease(pool)
            if beginning:
                await reach(pool, lambda now: now.generations == 2)
                assert pool.statistics().recycles == 0
            else:
                await reach(pool, lambda now: now.recycles == 1)


async def test_age_wears_a_fork_server_out(host_tier: Tier, state_dir: str) -> None:
    """An idle pool is recycled too, and its idle workers with it."""
    profile, wear = plain_profile(host_tier), Wear(seconds=0.2)
    async with open_pool(profile, state_dir, wear=wear) as pool:
        with trio.fail_after(20):
            before = await reach(pool, lambda now: now.ready == 1)
            await reach(
                pool,
                lambda now: (
                    now.recycles > 0
                    and not {w.pid for w in before.workers}
                    & {w.pid for w in now.workers}
                ),
            )


async def test_the_exec_engine_has_nothing_to_recycle(
    host_tier: Tier, state_dir: str
) -> None:
    """Each of its workers has a fork server of its own anyway."""
    profile = plain_profile(host_tier, "exec")
    async with open_pool(profile, state_dir, wear=Wear(forks=1, seconds=0.1)) as pool:
        with trio.fail_after(20):
            for _ in range(2):
                await pool.lease(10)

            assert pool.statistics().recycles == 0
