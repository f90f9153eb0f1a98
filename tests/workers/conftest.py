"""Pools of every tier that this host reaches, on both engines."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from qedtrio.config import Limits
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.pool import Pool
from qedtrio.workers.probe import birth_limits
from qedtrio.workers.profile import Profile

KINDS = [
    (tier, engine)
    for tier in Tier
    for engine in ("fork", "exec")
    if (tier, engine) not in {(Tier.B, "exec"), (Tier.C, "exec")}
]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def kind(request: pytest.FixtureRequest, host_tier: Tier) -> tuple[Tier, str]:
    """One tier and one engine."""
    tier, engine = request.param
    if not host_tier.reaches(tier):
        pytest.skip(f"this host reaches tier {host_tier} only")
    return tier, engine


@asynccontextmanager
async def open_pool(
    profile: Profile, state_dir: str, ready: int = 1, **options: object
) -> AsyncIterator[Pool]:
    """Run a pool for the length of the block."""
    pool = Pool(
        profile,
        ready_workers=ready,
        max_workers=64,
        state_dir=state_dir,
        **options,  # type: ignore[arg-type]  # the test names them
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run)
        with trio.fail_after(30):
            await pool.wait_settled()
        yield pool
        nursery.cancel_scope.cancel()


def plain_profile(tier: Tier, engine: str = "fork", **fields: object) -> Profile:
    """A profile with nothing preloaded."""
    return Profile(
        name="plain",
        engine=engine,
        tier=tier,
        limits=birth_limits(Limits()),
        **fields,  # type: ignore[arg-type]  # the test names them
    )


@pytest.fixture
async def pool(kind: tuple[Tier, str], state_dir: str) -> AsyncIterator[Pool]:
    """A running pool without preload."""
    tier, engine = kind
    async with open_pool(plain_profile(tier, engine), state_dir) as pool:
        yield pool
