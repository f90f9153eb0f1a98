"""Sessions on one real pool of this host's best tier."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from qedtrio.config import Limits
from qedtrio.sandbox.rlimits import shared_limits
from qedtrio.sandbox.tiers import Tier
from qedtrio.sessions.registry import Sessions
from qedtrio.workers.memory import MemoryGate
from qedtrio.workers.pool import Pool
from qedtrio.workers.probe import birth_limits
from qedtrio.workers.watch import Watch
from tests.workers.conftest import plain_profile

__all__ = ["open_sessions"]

LIMITS = Limits(deadline_seconds=10.0, queue_seconds=10.0)


@asynccontextmanager
async def open_sessions(
    tier: Tier, state_dir: str, **changes: float | str
) -> AsyncIterator[tuple[Sessions, Pool]]:
    """Run sessions, their pool and the watch for the length of the block."""
    limits = replace(LIMITS, **changes)  # type: ignore[arg-type]  # the test names them
    profile = replace(plain_profile(tier), limits=birth_limits(limits))
    if tier is not Tier.A:
        profile = replace(profile, limits=shared_limits(profile.limits, 64))
    pool = Pool(profile, ready_workers=1, max_workers=64, state_dir=state_dir)
    gate = MemoryGate(limits.total_memory_bytes, limits.free_memory_bytes)
    sessions = Sessions({"plain": pool}, "plain", limits, gate)
    watch = Watch(pools=[pool], gate=gate, seconds=limits.watch_seconds)
    async with trio.open_nursery() as workers:
        workers.start_soon(pool.run)
        workers.start_soon(watch.run)
        with trio.fail_after(30):
            await pool.wait_settled()
        async with trio.open_nursery() as nursery:
            await nursery.start(sessions.run_forever)
            yield sessions, pool
            nursery.cancel_scope.cancel()
        workers.cancel_scope.cancel()


@pytest.fixture
async def sessions(host_tier: Tier, state_dir: str) -> AsyncIterator[Sessions]:
    """Sessions with the limits of most tests."""
    async with open_sessions(host_tier, state_dir) as (sessions, _):
        yield sessions


@pytest.fixture
async def session(sessions: Sessions) -> str:
    """The id of one open session."""
    from qedtrio.sessions.model import SessionOptions

    with trio.fail_after(20):
        info, _ = await sessions.create("s", SessionOptions(seed=7))
    return info.session_id
