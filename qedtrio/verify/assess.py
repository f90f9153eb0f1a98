"""What the daemon can say of an item without a worker."""

from dataclasses import dataclass
from time import perf_counter

from qedtrio.verify.extract import Extraction, extract_answer, extract_gold
from qedtrio.verify.model import Judgement, VerifyItem

__all__ = ["Assessment", "assess", "show_gold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Both sides of an item, extracted.

    Attributes:
        gold: The reference, or a cut of it where it is of no use.
        answer: None where the response holds none.
        judgement: None where `gold` and `answer` need to be compared.
        seconds: Time it took.
    """

    gold: str
    answer: str | None
    judgement: Judgement | None
    seconds: float


def assess(item: VerifyItem, *, answer_chars: int) -> Assessment:
    """Extract both sides; a broken gold goes before a broken answer."""
    began = perf_counter()
    gold = extract_gold(item.gold, answer_chars=answer_chars)
    answer = extract_answer(item.prediction, answer_chars=answer_chars)
    shown = gold.answer or show_gold(item.gold, answer_chars)
    return Assessment(
        gold=shown,
        answer=answer.answer,
        judgement=_judge(gold) or _judge(answer),
        seconds=perf_counter() - began,
    )


def show_gold(gold: str, chars: int) -> str:
    """Cut a gold that cannot be used, and make it encodable."""
    return gold[:chars].encode("utf-8", "replace").decode("utf-8")


def _judge(side: Extraction) -> Judgement | None:
    if side.status is None:
        return None
    return Judgement(status=side.status, method="extract", reason=side.reason)
