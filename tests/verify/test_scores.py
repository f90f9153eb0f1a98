"""Agreement with reference scores on real responses, extraction and judging only."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from qedtrio.verify.assess import assess
from qedtrio.verify.compare import judge
from qedtrio.verify.model import VerifyItem

GROUPS = Path(__file__).parents[3] / "shared/data/math_groups_60x8.jsonl"


def decide(gold: str, response: str) -> str:
    """The status, without a worker in between."""
    found = assess(VerifyItem(gold=gold, prediction=response), answer_chars=2000)
    if found.judgement is not None:
        return found.judgement.status
    return str(judge({"gold": found.gold, "answer": found.answer})["status"])


def read_responses() -> Iterator[tuple[str, str, str, bool]]:
    """Id, gold, response and whether the reference calls it right."""
    for line in GROUPS.read_text().splitlines():
        row = json.loads(line)
        scored = zip(row["responses"], row["reference_scores"], strict=True)
        for response, score in scored:
            yield row["id"], row["answer"], response, bool(score)


@pytest.mark.slow
@pytest.mark.skipif(not GROUPS.exists(), reason="needs ../shared/data")
def test_real_responses_are_judged_as_the_reference_judges() -> None:
    """480 responses to 60 problems: not one disagreement."""
    responses = list(read_responses())
    others = [
        (name, status)
        for name, gold, response, is_right in responses
        if ((status := decide(gold, response)) == "correct") is not is_right
    ]

    assert len(responses) == 480
    assert not others
