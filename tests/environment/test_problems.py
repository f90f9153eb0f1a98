"""The bundled problems: complete, honest, and worth demonstrating."""

import json
import subprocess
import sys
from collections import Counter
from importlib import resources

import pytest
import trio

from qedtrio.environment.problems import Problem, bundled_problems
from qedtrio.results import RunStatus, VerdictStatus

PROBLEMS = bundled_problems()
ANSWERS = [p for p in PROBLEMS if p.kind == "answer"]
PROOFS = [p for p in PROBLEMS if p.kind == "proof"]

ENDS_BY_LIMIT = {RunStatus.TIMED_OUT, RunStatus.MEMORY_EXCEEDED}

REPLAY = """
import contextlib, io, json, sys
for cells in json.load(sys.stdin):
    namespace, ends = {}, []
    for code in cells:
        out, status = io.StringIO(), "ok"
        try:
            with contextlib.redirect_stdout(out):
                exec(code, namespace)
        except SystemExit:
            status, namespace = "exited", {}
        except Exception:
            status = "error"
        ends.append([status, out.getvalue().strip()])
    print(json.dumps(ends))
"""


def by_id(problem: Problem) -> str:
    """The problem as the test's id."""
    return problem.id


def test_there_are_enough_of_each_kind() -> None:
    """At least twelve to answer and four to prove, each under its own id."""
    assert len(ANSWERS) >= 12
    assert len(PROOFS) >= 4
    assert len({p.id for p in PROBLEMS}) == len(PROBLEMS)


def test_no_field_is_misspelt() -> None:
    """Every key in the file is a field; decoding alone would skip others."""
    text = resources.files("qedtrio.environment").joinpath("problems.jsonl").read_text()
    for line in text.splitlines():
        row = json.loads(line)
        script = row.get("script", {})
        keys = {*row, *script, *(k for c in script.get("cells", ()) for k in c)}

        assert keys <= {
            *("id", "kind", "problem", "answer", "needs", "script"),
            *("reference_solution", "marking_scheme"),
            *("cells", "response", "verdict"),
            *("code", "status", "prints", "deadline_seconds"),
        }


def test_the_demonstration_shows_more_than_success() -> None:
    """Runs that fail in several ways, and verdicts other than correct."""
    scripts = [p.script for p in ANSWERS if p.script is not None]
    verdicts = Counter(script.verdict for script in scripts)
    runs = {cell.status for script in scripts for cell in script.cells}

    assert verdicts[VerdictStatus.CORRECT] >= 10
    assert {"wrong", "no_answer", "empty_answer"} <= set(verdicts)
    assert {"ok", "error", "timed_out", "exited", "memory_exceeded"} <= runs


def test_a_timed_out_run_is_followed_by_one_that_needs_its_state() -> None:
    """The demonstration proves that state survives a deadline."""
    scripts = [p.script for p in ANSWERS if p.script is not None]
    statuses = [[cell.status for cell in script.cells] for script in scripts]

    assert ["ok", "timed_out", "ok"] in statuses


@pytest.mark.parametrize("problem", PROOFS, ids=by_id)
def test_a_proof_has_seven_points_and_a_reference(problem: Problem) -> None:
    """Marking schemes add up to the customary seven."""
    assert problem.reference_solution
    assert sum(item.points for item in problem.marking_scheme) == 7
    assert all(item.points > 0 and item.desc for item in problem.marking_scheme)


@pytest.mark.parametrize("problem", ANSWERS, ids=by_id)
def test_a_response_fits_its_scripted_verdict(problem: Problem) -> None:
    """A decided response has a box, an unanswered one none, an empty one is empty."""
    assert problem.answer
    assert problem.script is not None
    boxed = r"\boxed{" in problem.script.response

    assert boxed is (problem.script.verdict != VerdictStatus.NO_ANSWER)
    empty = r"\boxed{}" in problem.script.response
    assert empty is (problem.script.verdict == VerdictStatus.EMPTY_ANSWER)


@pytest.mark.slow
async def test_cells_do_what_the_script_says() -> None:
    """Replayed in a plain interpreter, each run ends and prints as written."""
    played = [
        [cell for cell in problem.script.cells if cell.status not in ENDS_BY_LIMIT]
        for problem in ANSWERS
        if problem.script is not None
    ]
    codes = [[cell.code for cell in cells] for cells in played]
    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-c", REPLAY],
            stdin=json.dumps(codes).encode(),
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
        )

    replayed = [json.loads(line) for line in done.stdout.splitlines()]
    assert replayed == [[[c.status, c.prints] for c in cells] for cells in played]
