"""Workers that end before the daemon has come to own them."""

import time
from dataclasses import replace

import psutil
import pytest
import trio
import trio.testing

from qedtrio.errors import WorkerStartError
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.fork import ForkServer
from tests.workers.conftest import plain_profile

ROUNDS = 8
"""Two tasks wake up at once, in random order; one order in two is the bad one."""

SETTLED_SECONDS = 0.15
"""So long nothing is born and nothing dies once a start has failed."""


async def test_a_worker_that_died_unseen_is_buried(
    kind: tuple[Tier, str], state_dir: str
) -> None:
    """A busy daemon reads its birth and its death in one go; the reason arrives."""
    if kind[1] == "exec":
        pytest.skip("its fork server is the same")
    profile = replace(plain_profile(kind[0]), late_preload=("no_such_module",))
    engine = ForkServer(profile, state_dir, lambda: None)
    said: list[str] = []

    async def spawn() -> None:
        with pytest.raises(WorkerStartError) as caught:
            await engine.spawn()
        said.append(str(caught.value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.run)
        with trio.fail_after(20):
            await engine.ready.wait()
            for _ in range(ROUNDS):
                async with trio.open_nursery() as spawning:
                    spawning.start_soon(spawn)
                    await trio.testing.wait_all_tasks_blocked()
                    block_until_settled()
        nursery.cancel_scope.cancel()

    assert len(said) == ROUNDS
    assert all("no_such_module" in reason for reason in said), said


def block_until_settled() -> None:
    """Keep the event loop from turning while a worker lives and dies."""
    seen, since = processes_below(), time.monotonic()
    while time.monotonic() - since < SETTLED_SECONDS:
        if (now := processes_below()) != seen:
            seen, since = now, time.monotonic()


def processes_below() -> set[int]:
    """The process ids below this one."""
    return {child.pid for child in psutil.Process().children(recursive=True)}
