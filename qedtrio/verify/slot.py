"""One place for a worker: leases it, gives it items, and sees to its end."""

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import trio

from qedtrio.config import VerifyConfig
from qedtrio.errors import (
    BrokenWorkerError,
    QueueTimeoutError,
    ReleaseFailedError,
    WorkerLostError,
    WorkerStartError,
)
from qedtrio.results import VerdictStatus
from qedtrio.verify.job import Job
from qedtrio.verify.model import Judgement
from qedtrio.verify.pool import JobPool, JobWorker

__all__ = ["Slot"]

LEASE_SECONDS = 30.0
"""A pool that yields no worker for so long counts as unable to start one."""

KILL_SECONDS = 10.0
"""Above the bound of `JobWorker.kill` itself; guards against its bugs."""

logger = logging.getLogger(__name__)

_FROM_WORKERS = frozenset(
    {
        VerdictStatus.CORRECT,
        VerdictStatus.WRONG,
        VerdictStatus.UNPARSABLE,
        VerdictStatus.GOLD_ERROR,
        VerdictStatus.RESOURCE_EXCEEDED,
    }
)


class Slot:
    """Owner of at most one worker, which it replaces when it is spoilt.

    Attributes:
        worker: The worker owned now.
        is_busy: Whether an item is in hand.
    """

    def __init__(
        self, pool: JobPool, config: VerifyConfig, counts: Counter[str]
    ) -> None:
        self.worker: JobWorker | None = None
        self.is_busy = False
        self._pool = pool
        self._config = config
        self._counts = counts
        self._leased = 0
        self._served = 0
        self._is_spoilt = False  # kill before any further use
        self._is_starved = False  # the last lease failed

    async def refill(self) -> None:
        """Have a worker ready before there is an item, if the pool has one.

        After a failure it is the next item that asks the pool again.
        """
        if self._is_starved:
            return
        try:
            await self.prepare()
        except WorkerStartError as error:
            logger.warning("no verify worker: %s", error)

    async def prepare(self) -> JobWorker:
        """Make sure of a worker fit for the next item.

        Raises:
            WorkerStartError: The pool gives none.
        """
        if self._is_spoilt:
            await self.release()
        if self.worker is None:
            self.worker = await self._lease()
            self._counts["restarts"] += self._leased > 0
            self._leased += 1
            self._served = 0
            self._is_spoilt = False
        return self.worker

    async def decide(self, job: Job) -> Judgement | WorkerStartError:
        """Try `job` on this slot's worker, and again on fresh ones.

        Cancellation leaves the worker spoilt, for `prepare` or `release` to kill.

        Returns:
            The judgement; after the last failed attempt, its failure; or the
            pool's error where not even a first attempt could be made.
        """
        failure: Judgement | None = None
        for _ in range(1 + self._config.retries):
            try:
                worker = await self.prepare()
            except WorkerStartError as error:
                return failure or error
            self._counts["retries"] += failure is not None
            judgement, is_final = await self._attempt(worker, job)
            if is_final:
                return judgement
            failure = judgement
        assert failure is not None, "there is always one attempt"
        return failure

    async def release(self) -> None:
        """Kill the worker, if any; shielded and bounded."""
        worker, self.worker = self.worker, None
        if worker is None:
            return
        is_dead = False
        with (
            suppress(ReleaseFailedError),
            trio.move_on_after(KILL_SECONDS, shield=True),
        ):
            await worker.kill()
            is_dead = True
        if not is_dead:
            self._counts["release_failures"] += 1
            logger.error("verify worker %d could not be confirmed dead", worker.pid)

    async def _lease(self) -> JobWorker:
        try:
            with trio.fail_after(LEASE_SECONDS):
                worker = await self._pool.lease()
        except (trio.TooSlowError, QueueTimeoutError, WorkerStartError) as error:
            self._is_starved = True
            self._counts["start_failures"] += 1
            if isinstance(error, WorkerStartError):
                raise
            raise WorkerStartError(
                f"no verify worker within {LEASE_SECONDS:g} s"
            ) from error
        self._is_starved = False
        return worker

    async def _attempt(self, worker: JobWorker, job: Job) -> tuple[Judgement, bool]:
        """Dispatch once; the flag says whether the judgement is final."""
        self._is_spoilt = True  # until its reply is in and makes sense
        began = trio.current_time()
        try:
            with trio.move_on_after(job.deadline_seconds):
                reply = await worker.call(job.to_call())
                judgement = _read(reply)
                self._note_served(reply)
                return judgement, True
        except (WorkerLostError, BrokenWorkerError) as error:
            self._counts["deaths"] += 1
            return _died(str(error)), False
        finally:
            job.call_seconds += trio.current_time() - began
        self._counts["timeouts"] += 1
        logger.warning("verify worker %d overran its deadline", worker.pid)
        return _overran(job.deadline_seconds), False

    def _note_served(self, reply: Mapping[str, object]) -> None:
        self._served += 1
        is_worn = self._served >= self._config.recycle_after
        self._is_spoilt = is_worn or reply.get("recycle") is True
        self._counts["recycled"] += self._is_spoilt


def _read(reply: Mapping[str, object]) -> Judgement:
    """Check a reply: a worker that parses hostile text is not to be trusted."""
    status, method, reason = (reply.get(key) for key in ("status", "method", "reason"))
    if (
        isinstance(status, str)
        and status in _FROM_WORKERS
        and isinstance(method, str)
        and isinstance(reason, str)
    ):
        return Judgement(status=VerdictStatus(status), method=method, reason=reason)
    raise BrokenWorkerError("the reply is no judgement")


def _overran(seconds: float) -> Judgement:
    return Judgement(
        status=VerdictStatus.TIMEOUT,
        method="worker",
        reason=f"no judgement within {seconds:g} s",
    )


def _died(why: str) -> Judgement:
    return Judgement(
        status=VerdictStatus.WORKER_DIED,
        method="worker",
        reason=f"the worker was lost: {why}",
    )
