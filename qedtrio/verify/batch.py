"""Verdicts of a batch on their way to its asker."""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

import trio

from qedtrio.errors import (
    DrainingError,
    OverloadedError,
    QedtrioError,
    QueueTimeoutError,
)
from qedtrio.results import Verdict, VerdictStatus
from qedtrio.verify.assess import show_gold
from qedtrio.verify.job import Outcome, Report, build_verdict
from qedtrio.verify.model import Judgement, VerifyItem

__all__ = ["Batch"]


class Batch:
    """Collects one verdict for each of `items`; never blocks who reports.

    Attributes:
        results: Yields (index, verdict) in the order of reports, then ends.
    """

    def __init__(
        self,
        items: Sequence[VerifyItem],
        count: Callable[[Verdict], None],
        gold_chars: int,
    ) -> None:
        self._items = items
        self._count = count
        self._gold_chars = gold_chars
        self._left = len(items)
        self._sender, self._receiver = trio.open_memory_channel[tuple[int, Verdict]](
            len(items)
        )
        self.results: AsyncIterator[tuple[int, Verdict]] = self._receiver
        if not items:
            self._sender.close()

    def report_of(self, index: int) -> Report:
        """Where the outcome of one item goes."""
        return partial(self._put, index)

    def close(self) -> None:
        """Accept and yield nothing more."""
        self._sender.close()
        self._receiver.close()

    def _put(self, index: int, outcome: Outcome) -> None:
        if isinstance(outcome, QedtrioError):
            outcome = self._build_from_error(index, outcome)
        self._count(outcome)
        self._sender.send_nowait((index, outcome))
        self._left -= 1
        if not self._left:
            self._sender.close()

    def _build_from_error(self, index: int, error: QedtrioError) -> Verdict:
        """Put an error into the form of a verdict: a batch has no other place."""
        return build_verdict(
            _judge_error(error),
            gold=show_gold(self._items[index].gold, self._gold_chars),
            extracted=None,
            wall_seconds=0.0,
        )


def _judge_error(error: QedtrioError) -> Judgement:
    match error:
        case OverloadedError() | QueueTimeoutError():
            status = VerdictStatus.OVERLOADED
        case DrainingError():
            status = VerdictStatus.CANCELLED
        case _:
            status = VerdictStatus.WORKER_DIED
    return Judgement(status=status, method="queue", reason=str(error))
