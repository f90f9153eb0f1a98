"""Cancelling a pool at any moment leaves no process, descriptor or folder.

The guard of every test does the looking; here only the moments are made.
"""

import pytest
import trio

from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.pool import Pool
from tests.workers.conftest import plain_profile

pytestmark = pytest.mark.slow


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope when all tasks together have made so many steps."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self.scope = scope
        self.left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count one step of any task."""
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


async def use(pool: Pool) -> None:
    """Take a worker, talk to it, kill it, and take another."""
    worker = await pool.lease(20)
    await worker.request({"op": "ping"})
    await worker.kill()
    await pool.lease(20)


@pytest.mark.parametrize(
    ("engine", "tier"), [("fork", Tier.A), ("fork", Tier.C), ("exec", Tier.A)]
)
async def test_a_pool_can_be_cancelled_at_every_step(
    engine: str, tier: Tier, host_tier: Tier, state_dir: str
) -> None:
    """From the opening of the launcher to the second lease."""
    tier = tier if host_tier.reaches(tier) else host_tier
    finished = False
    step = 0
    with trio.fail_after(100):
        while not finished:
            step += 1 if step < 12 else 1 + step // 8  # the first ones are the rarest
            pool = Pool(
                plain_profile(tier, engine),
                ready_workers=1,
                max_workers=4,
                state_dir=state_dir,
            )
            async with trio.open_nursery() as nursery:
                instrument = CancelAtStep(nursery.cancel_scope, step)
                trio.lowlevel.add_instrument(instrument)
                try:
                    nursery.start_soon(pool.run)
                    await use(pool)
                    finished = instrument.left > 0
                finally:
                    trio.lowlevel.remove_instrument(instrument)
                    nursery.cancel_scope.cancel()

    assert step > 20
