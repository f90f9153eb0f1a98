"""Decide whether an answer equals its reference: the child side of a worker.

Cheapest first: equal text, exact numbers, then math-verify behind its guard. Knows neither HTTP nor Trio; runs on the main
thread of a process that its parent kills at the deadline.
"""

import resource

from qedtrio.results import VerdictStatus
from qedtrio.verify.math_verify_safe import METHOD, compare_by_math_verify
from qedtrio.verify.model import Judgement
from qedtrio.verify.options import ComparisonOptions
from qedtrio.verify.quick import decide_quickly

__all__ = ["judge", "warm_up"]

SPENT_BYTES = 256 * 1024 * 1024
"""Peak memory above which the heap is so fragmented that the worker should go."""

EXAMPLES = (
    (r"\frac{1}{3}", r"\frac{2}{6}\cdot 1", True),
    (r"\frac{1}{3}", "0.333333", True),
    (r"2\sqrt{3}", r"\sqrt{12}", True),
    (r"\{1,2,3\}", r"\{3,2,1\}", True),
    ("(1,2)", "(2,1)", False),
    (r"(-\infty,2]\cup[3,\infty)", r"(-\infty,2]\cup(3,\infty)", False),
    ("x=5", "5", True),
    ("2x+1", "1+x+x", True),
    ("y=2x+1", "2x-y+1=0", True),
    ("1<x<2", "(1,2)", True),
    (
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        r"\begin{bmatrix}1&2\\3&4\end{bmatrix}",
        True,
    ),
    (r"\text{Evelyn}", "Evelyn", True),
    (r"12.5\%", r"\frac{1}{8}", True),
    (r"\sin\frac{\pi}{6}", r"\frac12", True),
    (r"e^{2}", r"e^{3}", False),
    (r"\log_{2} 8", "3", True),
)
"""Gold, answer and whether they are equal: one of each kind."""


def judge(job: dict[str, object]) -> dict[str, object]:
    """Compare `job["answer"]` with `job["gold"]`, both extracted.

    Args:
        job: The two, and `options`, as `ComparisonOptions.to_job` made them.

    Returns:
        `status`, one of `correct wrong unparsable gold_error
        resource_exceeded`; `method` and `reason`; and `recycle`, whether this
        process has been stretched and should be replaced.
    """
    gold, answer = job["gold"], job["answer"]
    assert isinstance(gold, str)
    assert isinstance(answer, str)
    options = job.get("options", {})
    assert isinstance(options, dict)
    before = _peak_bytes()
    judgement = _decide(gold, answer, ComparisonOptions(**options))
    grown = _peak_bytes() - before
    if judgement.status is not VerdictStatus.CORRECT and grown > _limit_bytes() // 2:
        # The library swallows MemoryError and calls the pair unequal.
        judgement = _exceeded("memory")
    return {
        "status": judgement.status.value,
        "method": judgement.method,
        "reason": judgement.reason,
        "recycle": grown > SPENT_BYTES or _is_spent(judgement),
    }


def warm_up() -> None:
    """Judge one example of each kind, so that first items cost no more.

    Raises:
        RuntimeError: A verdict is not the known one; nothing this
            installation says could be trusted.
    """
    for gold, answer, equal in EXAMPLES:
        judgement = compare_by_math_verify(gold, answer)
        expected = VerdictStatus.CORRECT if equal else VerdictStatus.WRONG
        if judgement.status is not expected:
            raise RuntimeError(
                f"math-verify finds {answer!r} {judgement.status} for {gold!r},"
                f" not {expected}; is sympy the pinned version?"
            )


def _decide(gold: str, answer: str, comparison: ComparisonOptions) -> Judgement:
    if judgement := decide_quickly(gold, answer, comparison):
        return judgement
    try:
        return compare_by_math_verify(gold, answer)
    except MemoryError:
        return _exceeded("memory")
    except RecursionError:
        return _exceeded("the stack")


def _exceeded(what: str) -> Judgement:
    reason = f"the comparison ran out of {what}"
    return _judge(VerdictStatus.RESOURCE_EXCEEDED, METHOD, reason)


def _is_spent(judgement: Judgement) -> bool:
    status, method = judgement.status, judgement.method
    return status is VerdictStatus.RESOURCE_EXCEEDED and method == METHOD


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit_bytes() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 1 << 62 if soft == resource.RLIM_INFINITY else soft


def _judge(status: VerdictStatus, method: str, reason: str) -> Judgement:
    return Judgement(status=status, method=method, reason=reason)
