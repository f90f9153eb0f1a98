"""Taking a worker from a pool and binding it to what it will serve."""

import logging
from collections.abc import Mapping
from typing import cast

import trio

from qedtrio.errors import WorkerError, WorkerStartError
from qedtrio.sandbox.cgroups import Cgroups
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.pool import Pool
from qedtrio.workers.worker import Worker, killed_on_failure

__all__ = ["lease_worker"]

BIND_SECONDS = 30.0
"""A fresh worker answers its lease in far less than this."""

log = logging.getLogger(__name__)


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
    limits = dict(cast("Mapping[str, float]", terms["limits"]))
    worker.watched.limits = limits
    try:
        async with killed_on_failure(worker):
            if pool.cgroups is not None:
                # Moving a process takes 0.1 ms, but 15 when the kernel first has
                # to wait for all its processors.
                await trio.to_thread.run_sync(_enclose, worker, pool.cgroups)
            own = _own_limits(limits, pool.profile.tier)
            with trio.fail_after(BIND_SECONDS):
                await worker.request({"op": "lease", **terms, "limits": own})
    except (WorkerError, trio.TooSlowError) as error:
        raise WorkerStartError(f"a fresh worker took no lease: {error}") from error
    return worker


def _own_limits(limits: Mapping[str, float], tier: Tier) -> dict[str, float]:
    """What the worker shall set for itself.

    Without a user namespace of its own a limit on processes would count all
    workers of the same user; there the watch holds each session to its bound.
    """
    return {k: v for k, v in limits.items() if k != "processes" or tier is Tier.A}


def _enclose(worker: Worker, cgroups: Cgroups) -> None:
    """Move the worker into a control group of its own."""
    group = None
    try:
        group = worker.watched.cgroup = cgroups.create(worker.watched.limits)
        group.add(worker.pid)
    except OSError as error:  # the other limits still hold
        log.warning("no control group for a worker", extra={"why": str(error)})
        if group is not None:  # it may have died and been buried meanwhile
            group.remove()
