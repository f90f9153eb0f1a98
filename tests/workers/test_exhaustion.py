"""An engine that is opened while there are hardly any descriptors."""

import os
import resource

import trio

from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.fork import ForkServer
from tests.conftest import open_descriptors
from tests.workers.conftest import plain_profile


async def open_engine(state_dir: str, spare: int) -> ForkServer:
    """Run an engine until it is ready or has failed, with so many descriptors."""
    engine = ForkServer(plain_profile(Tier.C), state_dir, lambda: None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest number that is free
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, hard))
    try:
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await engine.run()
                nursery.cancel_scope.cancel()

            nursery.start_soon(run)
            await engine.ready.wait()
            nursery.cancel_scope.cancel()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return engine


async def test_an_engine_without_descriptors_fails_by_name(state_dir: str) -> None:
    """Wherever they run out; nothing is left open and no folder behind."""
    with trio.fail_after(30):
        for spare in range(10):
            before = open_descriptors()
            engine = await open_engine(state_dir, spare)

            assert engine.ready.is_set() or engine.failure
            assert set(open_descriptors()) == set(before), spare
