"""A bare worker without a daemon, whose round trip is a floor."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from qedtrio.config import Limits
from qedtrio.workers.pool import Pool
from qedtrio.workers.probe import birth_limits, probe_host
from qedtrio.workers.profile import Profile
from qedtrio.workers.worker import Worker

__all__ = ["WorkerPinger", "open_worker_pinger"]

START_SECONDS = 30.0


class WorkerPinger:
    """Sends empty messages over a worker's control channel."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def ping(self) -> None:
        """Send an empty message and wait for its answer."""
        await self._worker.request({"op": "ping"})


@asynccontextmanager
async def open_worker_pinger() -> AsyncIterator[WorkerPinger]:
    """Hold one worker of a pool without preload, in this host's tier."""
    tier = (await probe_host()).tier
    profile = Profile(name="ping", tier=tier, limits=birth_limits(Limits()))
    with tempfile.TemporaryDirectory(prefix="qedtrio-bench-") as folder:
        Path(folder).chmod(0o711)  # noqa: ASYNC240  # once, before anything runs
        pool = Pool(profile, ready_workers=0, max_workers=1, state_dir=folder)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.run)
            yield WorkerPinger(await pool.lease(START_SECONDS))
            nursery.cancel_scope.cancel()
