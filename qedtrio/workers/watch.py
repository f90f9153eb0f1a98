"""The watch: looks at what leased workers use, and ends what uses too much.

Theory of operation. Every `watch_seconds` one thread takes a census of /proc
while any worker is leased. Each worker's use is held against the limits of
its lease, and all together against the daemon's. Whoever is over is marked
with an `Ending` and killed, its processor time excepted, which first brings
an interrupt; the run in progress, or the session's next one, finds the mark
and tells its client. Nothing of this is in the path of a run.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from os import cpu_count
from signal import SIGKILL

import trio

from qedtrio.results import RunStatus
from qedtrio.workers.census import (
    Subject,
    Usage,
    precise_bytes,
    read_processes,
    survey,
)
from qedtrio.workers.folders import folder_bytes
from qedtrio.workers.memory import MemoryGate
from qedtrio.workers.pool import Pool
from qedtrio.workers.watched import Ending, Watched, WatchedRun, count_oom_kills
from qedtrio.workers.worker import Worker

__all__ = ["Watch", "condemn", "exceeded"]

LEAST_OFFENDER_BYTES = 64 * 1024 * 1024
"""Killing less would free too little to help anybody."""
MOST_PRECISE = 100
"""Precise measurements in one look; each takes a fraction of a millisecond."""
MOVED_BYTES = 8 * 1024 * 1024
"""A precise figure holds until the cheap one has moved by this much,"""
STALE_LOOKS = 10
"""or for so many looks: writing to shared pages moves only the precise one."""

PROCESSORS = cpu_count() or 1

BETWEEN_RUNS = "; it was between two runs, and this one was not started"

Start = Callable[..., None]
"""Starts a task in the watch's own nursery."""

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What earlier looks found of one worker.

    Attributes:
        stage: How many runs it had begun, and whether one was going on.
        began_at: Its processor time when that run began, or the last one
            ended, as far as known.
        cpu_seconds: Its processor time at the last look.
        first_bytes: Its resident size when first seen: mostly the preload.
        precise: Resident and precise memory when last measured.
        looks: Since then.
    """

    stage: tuple[int, bool] = (0, False)
    began_at: float = 0.0
    cpu_seconds: float = 0.0
    first_bytes: int
    precise: tuple[int, int] | None = None
    looks: int = 0

    def note_time(self, watched: Watched, total: float) -> float:
        """Take down the processor time so far.

        Returns:
            What the run has used; between runs, what was used since the last.
        """
        stage = watched.runs, watched.run is not None
        if stage != self.stage:
            # Not more than a run of this age can have used belongs to it.
            run = watched.run
            age = 0.0 if run is None else trio.current_time() - run.started
            self.began_at = max(self.cpu_seconds, total - age * PROCESSORS)
        self.stage = stage
        self.cpu_seconds = max(total, self.cpu_seconds)
        return total - self.began_at


@dataclass(slots=True, kw_only=True)
class _Case:
    """One worker in one look; `memory_bytes` is precise where it matters."""

    worker: Worker
    seen: _Seen
    usage: Usage
    memory_bytes: float = 0.0
    disk_bytes: float = 0.0

    def measure(self) -> None:
        """Measure precisely."""
        resident = self.usage.resident_bytes
        precise = precise_bytes(self.usage)
        self.seen.precise, self.seen.looks = (resident, precise), 0
        self.memory_bytes = precise

    def refresh(self) -> None:
        """Take the last precise figure where it may still hold, or measure."""
        self.seen.looks += 1
        if self.seen.precise is not None and self.seen.looks < STALE_LOOKS:
            resident, precise = self.seen.precise
            moved = self.usage.resident_bytes - resident
            if abs(moved) <= MOVED_BYTES:
                self.memory_bytes = precise + moved
                return
        self.measure()

    def count_folder(self) -> None:
        """Add up its folder, where it lies on the host."""
        most = self.worker.watched.limits.get("disk_bytes")
        if self.worker.folder and most is not None:
            self.disk_bytes = folder_bytes(self.worker.folder, most)


@dataclass(slots=True, eq=False)
class Watch:
    """Watches over the leased workers of some pools.

    Args:
        pools: Whose workers.
        gate: Told what all use together; decides when that is too much.
        seconds: Between two looks.
    """

    pools: Iterable[Pool]
    gate: MemoryGate
    seconds: float
    _seen: dict[Worker, _Seen] = field(default_factory=dict)
    _limiter: trio.CapacityLimiter = field(
        default_factory=lambda: trio.CapacityLimiter(1)
    )

    async def run(self) -> None:
        """Look at regular intervals until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self.seconds)
                try:
                    await self._look(nursery.start_soon)
                except Exception:  # out of descriptors, or a defect: look again
                    log.exception("the watch could not look")

    async def _look(self, start: Start) -> None:
        workers = [w for pool in self.pools for w in pool.leased()]
        workers = [w for w in workers if w.watched.ending is None]
        if not workers:
            self._seen.clear()
            self.gate.used_bytes = 0.0
            return
        # No deadline could stop the thread; all it does is read /proc and folders.
        cases, oom_kills = await trio.to_thread.run_sync(
            self._examine, workers, limiter=self._limiter
        )
        self._seen = {case.worker: case.seen for case in cases}
        self.gate.used_bytes = sum(case.memory_bytes for case in cases)
        for case in cases:
            case.worker.watched.oom_kills = oom_kills
            self._judge(case, start)
        self._judge_all(cases, start)

    # In a thread -------------------------------------------------------------

    def _examine(self, workers: list[Worker]) -> tuple[list[_Case], int]:
        oom_kills = count_oom_kills()
        cases = self._count(workers)
        for case in cases:
            case.count_folder()
            most = case.worker.watched.limits.get("memory_bytes", float("inf"))
            if case.memory_bytes > most:
                case.measure()
        if sum(case.memory_bytes for case in cases) > self.gate.total_bytes:
            self._refine(cases)
        return cases, oom_kills

    def _count(self, workers: list[Worker]) -> list[_Case]:
        subjects = [Subject(pid=w.pid, first_pid=w.watched.first_pid) for w in workers]
        usages = survey(subjects, list(read_processes()))
        cases = []
        for worker in workers:
            usage = usages[worker.pid]
            if (group := worker.watched.cgroup) is not None:
                usage.cpu_seconds = max(usage.cpu_seconds, group.cpu_seconds())
            seen = self._seen.get(worker) or _Seen(first_bytes=usage.resident_bytes)
            cases.append(
                _Case(
                    worker=worker,
                    seen=seen,
                    usage=usage,
                    memory_bytes=usage.resident_bytes,
                )
            )
        return cases

    def _refine(self, cases: list[_Case]) -> None:
        """Measure who is big; of the others take off what all share."""
        cases = sorted(cases, key=lambda case: case.memory_bytes, reverse=True)
        shared = min(case.seen.first_bytes for case in cases)
        for case in cases[:MOST_PRECISE]:
            case.refresh()
        for case in cases[MOST_PRECISE:]:
            case.memory_bytes = max(0, case.memory_bytes - shared)

    # Judgement ---------------------------------------------------------------

    def _judge(self, case: _Case, start: Start) -> None:
        worker, run = case.worker, case.worker.watched.run
        used = case.seen.note_time(worker.watched, case.usage.cpu_seconds)
        limits = worker.watched.limits
        ending = exceeded(limits, case.usage, case.memory_bytes, case.disk_bytes)
        if ending is not None:
            condemn(worker, ending, start)
        elif used > limits.get("cpu_seconds", float("inf")):
            if run is None:  # what a run left behind goes on
                condemn(worker, _cpu_ending(limits), start)
            elif run.ending is None:
                start(_interrupt, worker, run, _cpu_ending(limits), start)

    def _judge_all(self, cases: list[_Case], start: Start) -> None:
        """Kill the biggest, where all together use too much."""
        reason = self.gate.excess()
        left = [case for case in cases if case.worker.watched.ending is None]
        if not reason or not left:
            return
        biggest = max(left, key=lambda case: case.memory_bytes)
        if biggest.memory_bytes < LEAST_OFFENDER_BYTES:
            return
        message = f"{reason}; this was the biggest, with {biggest.memory_bytes:.0f}"
        ending = Ending(
            status=RunStatus.MEMORY_EXCEEDED, kind="HostMemoryExceeded", message=message
        )
        condemn(biggest.worker, ending, start)


def exceeded(
    limits: Mapping[str, float], usage: Usage, memory_bytes: float, disk_bytes: float
) -> Ending | None:
    """Hold what a worker uses against the limits of its lease."""
    infinite = float("inf")
    most = limits.get("memory_bytes", infinite)
    if memory_bytes > most:
        return Ending(
            status=RunStatus.MEMORY_EXCEEDED,
            kind="MemoryLimitExceeded",
            message=f"the session's {len(usage.residents)} processes used"
            f" {memory_bytes:.0f} bytes, more than its limit of {most:.0f}",
        )
    most = limits.get("processes", infinite)
    if usage.threads > most:
        return Ending(
            status=RunStatus.SIGNALLED,
            kind="ProcessLimitExceeded",
            message=f"the session had {usage.threads} processes and threads, more than"
            f" its limit of {most:.0f}",
            signal=SIGKILL,
        )
    most = limits.get("disk_bytes", infinite)
    if disk_bytes > most:
        return Ending(
            status=RunStatus.SIGNALLED,
            kind="DiskLimitExceeded",
            message=f"the session's files took more than its limit of {most:.0f} bytes",
            signal=SIGKILL,
        )
    return None


def _cpu_ending(limits: Mapping[str, float]) -> Ending:
    most = limits["cpu_seconds"]
    return Ending(
        status=RunStatus.TIMED_OUT,
        kind="CpuTimeExceeded",
        message=f"more than {most:g} s of processor time",
    )


def condemn(worker: Worker, ending: Ending, start: Start) -> None:
    """Mark a worker with the reason, and have it killed; its pool buries it."""
    log.warning(
        "worker over a limit",
        extra={
            "worker_pid": worker.pid,
            "session": worker.session_id,
            "limit": ending.kind,
        },
    )
    if worker.watched.run is None:
        ending = replace(ending, message=ending.message + BETWEEN_RUNS)
    worker.watched.ending = ending
    start(worker.release)


async def _interrupt(
    worker: Worker, run: WatchedRun, ending: Ending, start: Start
) -> None:
    """End a run softly, or else its worker with it."""
    if not await run.end(ending) and worker.watched.run is run:
        condemn(worker, ending, start)
