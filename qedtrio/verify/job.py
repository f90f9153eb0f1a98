"""One item on its way from admission to its verdict."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import trio

from qedtrio.errors import QedtrioError
from qedtrio.results import Verdict
from qedtrio.verify.model import Judgement
from qedtrio.verify.options import ComparisonOptions

__all__ = ["Job", "Outcome", "Report", "build_verdict"]

Outcome = Verdict | QedtrioError

Report = Callable[[Outcome], None]


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """An item that needs a worker.

    Attributes:
        request: What it was asked as part of, for fairness.
        gold: Extracted reference.
        answer: Extracted answer.
        comparison: How the two are compared.
        deadline_seconds: For each attempt, from its dispatch.
        report: Called once with the outcome, unless the asker has gone.
        admitted: Trio-clock time.
        extract_seconds: Time the daemon spent on it before admission.
        call_seconds: Time in workers, all attempts.
        scope: Surrounds its attempts; cancelled when the asker goes.
        is_finished: The outcome is known or does not matter.
    """

    request: Hashable
    gold: str
    answer: str
    comparison: ComparisonOptions
    deadline_seconds: float
    report: Report
    admitted: float = field(default_factory=trio.current_time)
    extract_seconds: float = 0.0
    call_seconds: float = 0.0
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_finished: bool = False

    def to_call(self) -> dict[str, object]:
        """What a worker is asked."""
        return {
            "gold": self.gold,
            "answer": self.answer,
            "options": self.comparison.to_job(),
        }

    def finish(self, outcome: Judgement | QedtrioError) -> None:
        """Report the outcome; only the first call counts."""
        if self.is_finished:
            return
        self.is_finished = True
        if isinstance(outcome, QedtrioError):
            self.report(outcome)
            return
        waited = trio.current_time() - self.admitted - self.call_seconds
        self.report(
            build_verdict(
                outcome,
                gold=self.gold,
                extracted=self.answer,
                wall_seconds=self.extract_seconds + self.call_seconds,
                queue_seconds=max(0.0, waited),
            )
        )

    def abandon(self) -> None:
        """End the work: nobody waits for it any more."""
        if not self.is_finished:
            self.is_finished = True
            self.scope.cancel()


def build_verdict(
    judgement: Judgement,
    *,
    gold: str,
    extracted: str | None,
    wall_seconds: float,
    queue_seconds: float = 0.0,
) -> Verdict:
    """Complete a judgement with what follows from it and what was measured."""
    return Verdict(
        status=judgement.status,
        correct=judgement.status.correct,
        reward=judgement.status.reward,
        extracted=extracted,
        gold=gold,
        method=judgement.method,
        reason=judgement.reason,
        wall_seconds=wall_seconds,
        queue_seconds=queue_seconds,
    )
