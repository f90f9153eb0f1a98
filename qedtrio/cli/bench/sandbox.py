"""What isolation costs: the same worker in each tier, side by side.

Tiers take turns, one worker each, and the order rotates, so that whatever else
the machine does hits all of them alike. The figure is the median of the
differences within a round, which noise moves less than a difference of medians.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from qedtrio.cli.bench.measure import Measurement, measurement, percentile
from qedtrio.cli.calls import RefusedError
from qedtrio.cli.entry import first_leaf
from qedtrio.config import Limits
from qedtrio.errors import QedtrioError
from qedtrio.sandbox.tiers import Tier
from qedtrio.sessions.model import RunRequest, SessionOptions
from qedtrio.sessions.registry import Sessions
from qedtrio.workers.pool import Pool
from qedtrio.workers.probe import birth_limits, probe_host
from qedtrio.workers.profile import Profile

__all__ = ["START_AIM_MS", "Difference", "SandboxCost", "measure_sandbox"]

START_AIM_MS = 3.0
"""What the strongest tier may add to a worker's start."""

WARM_RUNS = 10
"""In each worker; one more comes first and is not counted."""

LEAST_ROUNDS = 3
PRELOAD_SECONDS = 60.0
PRINT = RunRequest(code="print(1+1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Strongest tier minus weakest, in milliseconds, over all rounds.

    Attributes:
        median_ms: Half of the rounds were below it.
        quartiles_ms: A quarter was below the first, three below the second.
        undisturbed_ms: Difference of the tenth percentiles: other work on the
            machine only ever adds time, so the quickest samples say most.
    """

    median_ms: float
    quartiles_ms: tuple[float, float]
    undisturbed_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCost:
    """Tiers compared at one preload.

    Attributes:
        preload: Name of the list: `default` or `none`.
        tier: The strongest one that this host reaches.
        start: What it adds to opening a session without a ready worker.
        warm: What it adds to a run in a session that is open.
        measurements: Of each tier, the weakest one as the floor.
    """

    preload: str
    tier: str
    rounds: int
    start: Difference
    warm: Difference
    measurements: list[Measurement]


async def measure_sandbox(
    name: str, preload: Sequence[str], *, seconds: float
) -> SandboxCost:
    """Compare all tiers that this host reaches, for `seconds` each.

    Args:
        name: Of the preload, for the report.
        preload: Modules that every worker starts with.
        seconds: For each tier.

    Raises:
        RefusedError: The host reaches tier C only, or a worker failed.
        trio.TooSlowError: The preload took too long.
    """
    reached = (await probe_host()).tier
    tiers = [tier for tier in Tier if reached.reaches(tier)]
    if len(tiers) == 1:
        raise RefusedError("this host reaches tier C only: there is no difference")
    clock = time.perf_counter
    try:
        async with open_sessions(tiers, preload) as sessions:
            rounds = Rounds(sessions, tiers)
            with trio.fail_after(PRELOAD_SECONDS):
                await rounds.play()  # every pool is ready after it
            rounds.forget()
            began = clock()
            while (
                clock() < began + seconds * len(tiers) or rounds.number < LEAST_ROUNDS
            ):
                await rounds.play()
            return rounds.conclude(name, clock() - began)
    except* QedtrioError as group:
        raise RefusedError(f"a worker failed: {first_leaf(group)}") from group


@asynccontextmanager
async def open_sessions(
    tiers: Sequence[Tier], preload: Sequence[str]
) -> AsyncIterator[Sessions]:
    """Hold a pool without ready workers for each tier, named after it."""
    limits = Limits()
    with tempfile.TemporaryDirectory(prefix="qedtrio-bench-") as folder:
        Path(folder).chmod(0o711)  # noqa: ASYNC240  # once, before anything runs
        pools = {
            str(tier): Pool(
                Profile(
                    name=str(tier),
                    tier=tier,
                    preload=tuple(preload),
                    limits=birth_limits(limits),
                ),
                ready_workers=0,
                max_workers=2,
                state_dir=folder,
            )
            for tier in tiers
        }
        sessions = Sessions(pools, str(tiers[0]), limits)
        async with trio.open_nursery() as outer:
            for pool in pools.values():
                outer.start_soon(pool.run)
            async with trio.open_nursery() as inner:
                await inner.start(sessions.run_forever)
                yield sessions
                inner.cancel_scope.cancel()
            outer.cancel_scope.cancel()


@dataclass(slots=True)
class Rounds:
    """Samples in seconds, by tier; each round adds one start to each."""

    sessions: Sessions
    tiers: Sequence[Tier]
    number: int = 0
    starts: dict[Tier, list[float]] = field(default_factory=lambda: defaultdict(list))
    warm: dict[Tier, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def play(self) -> None:
        """Start a worker in each tier, use it, and kill it."""
        first = self.number % len(self.tiers)
        for tier in (*self.tiers[first:], *self.tiers[:first]):
            await self.visit(tier)
        self.number += 1

    async def visit(self, tier: Tier) -> None:
        """Open a session in one tier, run a line some times, close it."""
        clock = time.perf_counter
        before = clock()
        info, _ = await self.sessions.create(None, SessionOptions(pool=str(tier)))
        self.starts[tier].append(clock() - before)
        await self.sessions.run(info.session_id, PRINT)
        for _ in range(WARM_RUNS):
            before = clock()
            result = await self.sessions.run(info.session_id, PRINT)
            self.warm[tier].append(clock() - before)
            if (result.status, result.stdout) != ("ok", "2\n"):
                raise RefusedError(f"a run in tier {tier} ended as {result.status}")
        await self.sessions.close(info.session_id)

    def forget(self) -> None:
        """Drop what was measured so far: it warmed things up."""
        self.number = 0
        self.starts.clear()
        self.warm.clear()

    def conclude(self, preload: str, seconds: float) -> SandboxCost:
        """Summarise all rounds."""
        return SandboxCost(
            preload=preload,
            tier=str(self.tiers[0]),
            rounds=self.number,
            start=self.difference(self.starts),
            warm=self.difference(self.warm),
            measurements=[
                measurement(
                    f"{what}_{tier}_{preload}",
                    samples[tier],
                    seconds=seconds,
                    floor=None if tier is self.tiers[-1] else f"{what}_C_{preload}",
                )
                for what, samples in (("start", self.starts), ("warm", self.warm))
                for tier in self.tiers
            ],
        )

    def difference(self, samples: dict[Tier, list[float]]) -> Difference:
        """Compare the strongest tier with the weakest, sample by sample."""
        strongest, weakest = samples[self.tiers[0]], samples[self.tiers[-1]]
        ordered = sorted(
            1000 * (one - other) for one, other in zip(strongest, weakest, strict=True)
        )
        low, median, high = (quantile(ordered, part) for part in (0.25, 0.5, 0.75))
        quick, other = (1000 * quantile(sorted(s), 0.1) for s in (strongest, weakest))
        return Difference(
            median_ms=median, quartiles_ms=(low, high), undisturbed_ms=quick - other
        )


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Find a percentile of samples that there are."""
    found = percentile(ordered, fraction)
    assert found is not None
    return found
