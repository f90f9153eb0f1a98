"""What is asked of verification, and what it tells of itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from qedtrio.results import VerdictStatus
from qedtrio.verify.options import DEFAULT_OPTIONS, VerifyOptions

__all__ = ["Judgement", "VerifyItem", "VerifyStatistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyItem:
    """One prediction to check against its reference.

    Attributes:
        gold: The reference answer, bare or boxed LaTeX.
        prediction: The model's whole response.
        options: How to compare.
    """

    gold: str
    prediction: str
    options: VerifyOptions = DEFAULT_OPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one attempt to compare concluded.

    Attributes:
        method: What decided.
        reason: One short sentence for people, without text of either side.
    """

    status: VerdictStatus
    method: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyStatistics:
    """Verification at one moment; counts are since the start.

    Attributes:
        workers: Workers owned now.
        pids: Theirs.
        busy: Workers with an item.
        queue: Items that wait for a worker.
        verdicts: Status → verdicts given.
        restarts: Workers leased to replace another.
        recycled: Workers replaced on schedule or after heavy use.
        timeouts: Attempts that overran.
        deaths: Attempts whose worker died or answered nonsense.
        retries: Attempts beyond an item's first.
        cancelled: Items whose client went away.
        overloaded: Items refused or expired in the queue.
        start_failures: Times the pool gave no worker.
        release_failures: Workers whose death could not be confirmed in time.
    """

    workers: int
    pids: tuple[int, ...]
    busy: int
    queue: int
    verdicts: Mapping[str, int]
    restarts: int = 0
    recycled: int = 0
    timeouts: int = 0
    deaths: int = 0
    retries: int = 0
    cancelled: int = 0
    overloaded: int = 0
    start_failures: int = 0
    release_failures: int = 0
