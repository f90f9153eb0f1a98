"""Taking a worker from a pool and binding it to what it will serve."""

from collections.abc import Mapping

import trio

from qedtrio.errors import WorkerError, WorkerStartError
from qedtrio.workers.pool import Pool
from qedtrio.workers.worker import Worker, killed_on_failure

__all__ = ["lease_worker"]

BIND_SECONDS = 30.0
"""A fresh worker answers its lease in far less than this."""


async def lease_worker(
    pool: Pool, terms: Mapping[str, object], *, wait_seconds: float
) -> Worker:
    """Take a fresh worker and send it the terms of its lease.

    Cancellation leaves no worker leased.

    Args:
        pool: Where it comes from.
        terms: What its entry wants to know, such as limits and a seed.
        wait_seconds: The longest wait in the pool's line.

    Raises:
        WorkerStartError: There is none to be had; says why.
        QueueTimeoutError: None became free in time.
    """
    worker = await pool.lease(wait_seconds)
    try:
        async with killed_on_failure(worker):
            with trio.fail_after(BIND_SECONDS):
                await worker.request({"op": "lease", **terms})
    except (WorkerError, trio.TooSlowError) as error:
        raise WorkerStartError(f"a fresh worker took no lease: {error}") from error
    return worker
