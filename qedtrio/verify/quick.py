"""Decide what needs no computer algebra: cheap enough for the daemon itself."""

from qedtrio.results import VerdictStatus
from qedtrio.verify.exact import compare_exactly
from qedtrio.verify.model import Judgement
from qedtrio.verify.options import ComparisonOptions

__all__ = ["decide_quickly"]


def decide_quickly(
    gold: str,
    answer: str,
    comparison: ComparisonOptions,
) -> Judgement | None:
    """Compare as texts and as plain numbers; None where neither decides."""
    if gold.split() == answer.split():
        return _judge(VerdictStatus.CORRECT, "string", "the same text")
    if (equal := compare_exactly(gold, answer)) is not None:
        status = VerdictStatus.CORRECT if equal else VerdictStatus.WRONG
        return _judge(status, "exact", "equal" if equal else "another number")
    return None


def _judge(status: VerdictStatus, method: str, reason: str) -> Judgement:
    return Judgement(status=status, method=method, reason=reason)
