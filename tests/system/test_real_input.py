"""Real problems and real model responses, through the HTTP API."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.system.conftest import Api, open_client, open_daemon

pytestmark = pytest.mark.slow

CORRUPT_GOLDS = {"math-00003"}
"""Its reference answer is `4:30p..`, cut off; the verdict is `gold_error`."""


def read_lines(path: Path) -> list[dict[str, object]]:
    """Read a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_the_example_problems_are_played_whole(shared_data: Path) -> None:
    """Open, compute across several runs, verify, close: for each problem."""
    rows = read_lines(shared_data / "nemo_gym_math_with_code_example.jsonl")
    with trio.fail_after(120):
        async with (
            open_daemon(
                QEDTRIO_POOLS__SCIENCE__PRELOAD="sympy",
                QEDTRIO_VERIFY__DEADLINE_SECONDS="1",
            ) as daemon,
            open_client(daemon.url) as client,
        ):
            api = Api(client)
            for row in rows:
                name = f"problem-{row['id']}"
                gold = str(row["expected_result"])
                await api.post("/v1/sessions", 201, session_id=name)
                await api.run(name, "import sympy\nanswers = []")
                await api.run(name, f"answers.append({gold!r})\nprint(len(answers))")
                run = await api.run(name, "'\\\\boxed{' + answers[-1] + '}'")
                assert run["status"] == "ok"
                prediction = f"After computing, {str(run['result'])[1:-1]}".replace(
                    "\\\\", "\\"
                )
                verdict = await api.post("/v1/verify", gold=gold, prediction=prediction)
                assert verdict["status"] == "correct", (gold, verdict)
                wrong = await api.post(
                    "/v1/verify", gold=gold, prediction="So it is \\boxed{-12345}."
                )
                # One of these references is a power that takes too long to compare.
                assert wrong["status"] in {"wrong", "timeout"}, (gold, wrong)
                response = await client.delete(f"/v1/sessions/{name}")
                assert response.json()["outcome"] == "closed"
            status = await api.get("/v1/status")

    assert status["sessions"]["live"] == 0  # type: ignore[index]


async def test_real_responses_agree_with_their_reference_scores(
    shared_data: Path, record_property: Callable[[str, object], None]
) -> None:
    """All 480 responses in one batch; every disagreement is a corrupt gold."""
    items, scores, names = [], [], []
    for row in read_lines(shared_data / "math_groups_60x8.jsonl"):
        responses, rewards = row["responses"], row["reference_scores"]
        assert isinstance(responses, list)
        assert isinstance(rewards, list)
        for response, score in zip(responses, rewards, strict=True):
            items.append({"gold": row["answer"], "prediction": response})
            scores.append(bool(score))
            names.append(str(row["id"]))
    with trio.fail_after(120):
        async with (
            open_daemon(QEDTRIO_VERIFY__WORKERS="2") as daemon,
            open_client(daemon.url) as client,
        ):
            answer = await Api(client).post("/v1/verify", items=items)
    verdicts = answer["verdicts"]
    assert isinstance(verdicts, list)
    agreement = Counter(
        "agree" if v["correct"] is score else str(v["status"])
        for v, score in zip(verdicts, scores, strict=True)
    )
    record_property("agreement", dict(agreement))
    print(f"agreement with the reference scores: {dict(agreement)}")

    disagreeing = {
        name
        for name, verdict, score in zip(names, verdicts, scores, strict=True)
        if verdict["correct"] is not score
    }
    assert disagreeing <= CORRUPT_GOLDS
    assert agreement["agree"] >= 472
