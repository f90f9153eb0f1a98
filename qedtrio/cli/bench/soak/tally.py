"""What a soak counts. No I/O."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from qedtrio.cli.bench.measure import Measurement, measurement

__all__ = ["Latencies", "Reservoir", "Tally"]

KEPT_SAMPLES = 20_000
KEPT_FAILURES = 50


@dataclass(slots=True)
class Reservoir:
    """Latencies in seconds; of many, an even choice, so that memory is bounded."""

    seen: int = 0
    samples: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        """Take one sample in."""
        self.seen += 1
        if len(self.samples) < KEPT_SAMPLES:
            self.samples.append(seconds)
        elif (place := random.randrange(self.seen)) < KEPT_SAMPLES:  # noqa: S311  # no secret
            self.samples[place] = seconds


@dataclass(slots=True)
class Latencies:
    """Of runs, by act, from request to reply."""

    by_act: dict[str, Reservoir] = field(default_factory=dict)

    def add(self, act: str, seconds: float) -> None:
        """Take one run in."""
        self.by_act.setdefault(act, Reservoir()).add(seconds)

    def measurements(self, seconds: float, clients: int) -> list[Measurement]:
        """Summarise the latencies by act.

        Args:
            seconds: Of all traffic.
            clients: At a time.
        """
        return [
            replace(
                measurement(name, kept.samples, seconds=seconds, clients=clients),
                requests=kept.seen,
                per_second=kept.seen / seconds if seconds else 0.0,
            )
            for name, kept in sorted(self.by_act.items())
        ]


@dataclass(slots=True)
class Tally:
    """Counts of one soak.

    Attributes:
        episodes: That ended as they must, by kind.
        attempts: Started, the repeated ones included.
        runs: By status, of answers that were as they must be.
        verdicts: Likewise.
        faults: Answers that a fault explains, by the fault.
        recovered: Episodes that a fault had hit and a repetition completed.
        sessions: Opened.
        failed: Episodes with an answer that nothing explains.
        failures: The first of their sentences.
    """

    episodes: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    recovered: int = 0
    sessions: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, sentence: str) -> None:
        """Count a failure and keep its sentence, if there are not many."""
        self.failed += 1
        if len(self.failures) < KEPT_FAILURES:
            self.failures.append(sentence)

    def line(self, seconds: float) -> str:
        """Say in a line how it goes."""
        done = self.episodes.total()
        return (
            f"{seconds:.0f} s: {done} episodes ({done / max(seconds, 0.001):.1f}/s),"
            f" {self.runs.total()} runs, {self.verdicts.total()} verdicts,"
            f" {self.faults.total()} faults met, {self.failed} failures"
        )
