"""Verification, the parent side: a queue in front of killable workers.

Theory of operation. `Verifier.run` holds one nursery with a task for each of
`config.workers` slots. A slot owns one worker at a time: it leases it from the
pool, takes an item from the queue, waits for the reply, and kills the worker at
the item's deadline, after `recycle_after` items, when its asker goes away in the
middle, and on the way out. The other slots go on meanwhile.

An asker's task extracts the answer (pure, in the daemon), and where a
comparison is needed puts a job into the queue and waits for its report. A memo
of earlier verdicts belongs in `_start`, between the two. Queued jobs of an
asker that goes away are removed; a running one is cancelled through its scope.

Nothing waits for ever: queued jobs expire after `queue_seconds`, attempts at
their deadline, leases and kills by the bounds in `slot`. A pool that gives no
worker fails one item each time it is asked, never in a loop by itself. When
`run` ends, whatever waits is answered `draining` or `cancelled`.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager

import trio

from qedtrio.config import VerifyConfig
from qedtrio.errors import (
    DrainingError,
    OverloadedError,
    QedtrioError,
    QueueTimeoutError,
    WorkerStartError,
)
from qedtrio.results import Verdict
from qedtrio.verify.assess import assess
from qedtrio.verify.batch import Batch
from qedtrio.verify.job import Job, Outcome, Report, build_verdict
from qedtrio.verify.model import VerifyItem, VerifyStatistics
from qedtrio.verify.pool import JobPool, JobWorker
from qedtrio.verify.queue import FairQueue
from qedtrio.verify.slot import Slot

__all__ = ["JobPool", "JobWorker", "Verifier"]

LEAST_SECONDS = 0.05
"""Shortest deadline granted, as in the configuration: below it every attempt
would cost a worker."""

ITEMS_A_STEP = 32
"""Items of a batch that are extracted before other tasks get a turn."""

logger = logging.getLogger(__name__)


class Verifier:
    """Verifies items, at most `config.workers` at once.

    Args:
        config: Limits.
        pool: Where workers come from.
        queue_seconds: An item that waited so long for its turn expires.
    """

    def __init__(
        self, config: VerifyConfig, pool: JobPool, *, queue_seconds: float = 600.0
    ) -> None:
        self._config = config
        self._queue_seconds = queue_seconds
        self._queue: FairQueue[Job] = FairQueue(config.queue_size)
        self._counts: Counter[str] = Counter()
        self._verdicts: Counter[str] = Counter()
        self._slots = [Slot(pool, config, self._counts) for _ in range(config.workers)]
        self._is_started = self._is_stopped = False

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; every worker is dead or given up when it ends.

        Runs once. `started` does not wait for workers: `statistics` has them.
        """
        assert not self._is_started, "a verifier runs once"
        self._is_started = True
        async with trio.open_nursery() as nursery:
            for slot in self._slots:
                nursery.start_soon(self._serve, slot)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                # Before the workers are dead: askers wait for nothing more.
                self._is_stopped = True
                for job in self._queue.take_all():
                    job.finish(DrainingError())

    async def verify(self, item: VerifyItem) -> Verdict:
        """Verify one item.

        Cancellation takes it out of the queue, or kills the worker that is at it.

        Raises:
            OverloadedError: The queue is full.
            QueueTimeoutError: It waited too long for its turn.
            WorkerStartError: There is no worker to be had.
            DrainingError: The daemon is stopping.
        """
        self._require_open()
        outcomes: list[Outcome] = []
        done = trio.Event()

        def report(outcome: Outcome) -> None:
            outcomes.append(outcome)
            done.set()

        job = self._start(done, item, report)
        try:
            await done.wait()
        finally:
            self._abandon(job)
        (outcome,) = outcomes
        if isinstance(outcome, QedtrioError):
            raise outcome
        self._count(outcome)
        return outcome

    @asynccontextmanager
    async def verify_many(
        self, items: Sequence[VerifyItem]
    ) -> AsyncIterator[AsyncIterator[tuple[int, Verdict]]]:
        """Verify a batch, for the length of the block.

        Yields pairs of an item's index and its verdict, as they finish, one
        for every item. An item beyond the queue's size is `overloaded`; where
        there is no worker it is `worker_died`; when the daemon stops,
        `cancelled`. Leaving the block ends the work on what is unfinished.

        Raises:
            WorkerStartError: Verification has not started.
            DrainingError: The daemon is stopping.
        """
        self._require_open()
        jobs: list[Job | None] = []
        batch = Batch(items, self._count, self._config.answer_chars)
        try:
            for index, item in enumerate(items):
                if index % ITEMS_A_STEP == 0:
                    await trio.lowlevel.checkpoint()
                report = batch.report_of(index)
                try:
                    jobs.append(self._start(batch, item, report))
                except QedtrioError as error:
                    report(error)
            yield batch.results
        finally:
            for job in jobs:
                self._abandon(job)
            batch.close()

    def statistics(self) -> VerifyStatistics:
        """Describe this moment."""
        workers = [slot.worker for slot in self._slots if slot.worker is not None]
        return VerifyStatistics(
            workers=len(workers),
            pids=tuple(worker.pid for worker in workers),
            busy=sum(slot.is_busy for slot in self._slots),
            queue=len(self._queue),
            verdicts=dict(self._verdicts),
            **self._counts,
        )

    def _require_open(self) -> None:
        if not self._is_started:
            raise WorkerStartError("verification has not started")
        if self._is_stopped:
            raise DrainingError

    def _start(self, request: Hashable, item: VerifyItem, report: Report) -> Job | None:
        """Decide `item` here, or queue it for a worker.

        Returns:
            The job; None where the verdict has been reported already.

        Raises:
            QedtrioError: It cannot be admitted.
        """
        self._require_open()
        found = assess(item, answer_chars=self._config.answer_chars)
        if found.judgement is not None or found.answer is None:
            assert found.judgement is not None, "without an answer there is a reason"
            verdict = build_verdict(
                found.judgement,
                gold=found.gold,
                extracted=found.answer,
                wall_seconds=found.seconds,
            )
            report(verdict)
            return None
        job = Job(
            request=request,
            gold=found.gold,
            answer=found.answer,
            comparison=item.options.comparison,
            deadline_seconds=self._grant_seconds(item.options.deadline_seconds),
            report=report,
            extract_seconds=found.seconds,
        )
        try:
            self._queue.add(request, job)
        except OverloadedError:
            self._counts["overloaded"] += 1
            raise
        return job

    def _grant_seconds(self, asked: float | None) -> float:
        limit = self._config.deadline_seconds
        if asked is None:
            return limit
        return max(LEAST_SECONDS, min(limit, asked))  # NaN gets the limit

    def _abandon(self, job: Job | None) -> None:
        if job is None or job.is_finished:
            return
        self._queue.remove(job.request, job)
        job.abandon()
        self._counts["cancelled"] += 1

    def _count(self, verdict: Verdict) -> None:
        self._verdicts[verdict.status.value] += 1

    async def _serve(self, slot: Slot) -> None:
        try:
            while True:
                try:
                    await slot.refill()
                except Exception:  # the next item asks again, and is told
                    logger.exception("a verify worker could not be prepared")
                job = await self._queue.take()
                await self._process(slot, job)
        finally:
            await slot.release()  # noqa: ASYNC102  # shields and bounds itself

    async def _process(self, slot: Slot, job: Job) -> None:
        waited = trio.current_time() - job.admitted
        if waited > self._queue_seconds:
            self._counts["overloaded"] += 1
            job.finish(QueueTimeoutError(waited))
            return
        slot.is_busy = True
        try:
            with job.scope:
                job.finish(await slot.decide(job))
        except Exception:  # a defect costs this item, and not the verifier
            logger.exception("an item was not verified")
            job.finish(WorkerStartError("it failed by a defect of the daemon"))
        finally:
            slot.is_busy = False
            job.finish(DrainingError())  # only counts where we are cancelled
