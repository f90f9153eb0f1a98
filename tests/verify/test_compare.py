"""Judging, on the child's side."""

import json
import logging
import sys

import pytest
import trio

from qedtrio.verify.compare import judge, warm_up

CHECK_MODULES = """
import json, sys
import qedtrio.verify.compare
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""

RUN_OUT_OF_MEMORY = r"""
import json, resource
from qedtrio.verify import compare, math_verify_safe

def hoard(*_, **__):
    return bytearray(8 << 30)

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
math_verify_safe.verify = hoard
print(json.dumps(compare.judge({"gold": "x+1", "answer": "y+1"})))
"""

SWALLOW_MEMORY_ERROR = r"""
import json, resource
from qedtrio.verify import compare, math_verify_safe

def hoard(*_, **__):
    kept = []
    try:
        while True:
            kept.append(bytearray(16 << 20))
    except MemoryError:
        return False

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
math_verify_safe.verify = hoard
print(json.dumps(compare.judge({"gold": "x+1", "answer": "y+1"})))
"""


async def run_fresh(code: str) -> object:
    """Run `code` in a fresh interpreter; what it prints as JSON."""
    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-c", code], capture_stdout=True, capture_stderr=True
        )
    assert done.stderr == b""
    return json.loads(done.stdout)


def status(gold: str, answer: str) -> tuple[object, object]:
    """Status and method."""
    said = judge({"gold": gold, "answer": answer})
    assert isinstance(said["reason"], str)
    return said["status"], said["method"]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\text{a  b}", "\\text{a\nb} "),
        (r"\begin{cases} anything", r"\begin{cases}  anything"),
        ("9^{9^{9^9}}", "9^{9^{9^9}}"),
        (r"x \neq 1", r"x \neq 1"),
    ],
)
def test_the_same_text_is_correct_whatever_it_means(gold: str, answer: str) -> None:
    """Even where nothing can parse or afford it; only white space may differ."""
    assert status(gold, answer) == ("correct", "string")


@pytest.mark.parametrize(
    ("gold", "answer", "said"),
    [
        ("16", "016", "correct"),
        ("9" * 5000, "9" * 4999, "wrong"),
        ("1e-7", "1e-8", None),
    ],
)
def test_plain_numbers_are_compared_exactly(
    gold: str, answer: str, said: str | None
) -> None:
    """Integers at any size, without rounding."""
    found, method = status(gold, answer)
    if said is not None:
        assert (found, method) == (said, "exact")
    else:
        assert method == "math_verify"


@pytest.mark.parametrize(
    ("gold", "answer", "said"),
    [
        (r"\frac{1}{2}", r"\frac{\sqrt{4}}{4}", "correct"),
        (r"\frac{1}{3}", "0.333333", "correct"),
        ("(1,2)", "(2,1)", "wrong"),
        (r"\{1,2\}", r"\{2,1\}", "correct"),
        ("x=5", "5", "correct"),
        ("2x+1", "2y+1", "wrong"),
        ("1<x<2", "(1,2)", "correct"),
        (r"2\mathrm{e}^{2}", "2", "wrong"),
        ("5", r"5 \text{ km}", "wrong"),
    ],
)
def test_expressions_go_to_math_verify(gold: str, answer: str, said: str) -> None:
    """In its configuration that strips no units and salvages no numbers."""
    assert status(gold, answer) == (said, "math_verify")


@pytest.mark.parametrize(
    "answer",
    [
        r"\langle 1, 2 \rangle",
        "3, 5, 7, ...",
        r"\forall n > 2",
        r"5\} + 3",
        r"\begin{foo}1\end{foo}",
        "5个",
        "}{",
    ],
)
def test_what_cannot_be_parsed_is_named_and_never_mined_for_numbers(
    answer: str,
) -> None:
    """Each of these holds the gold as a number somewhere inside."""
    for gold in ("2", "5", "1", "7"):
        found, _ = status(gold, answer)
        assert found in ("unparsable", "wrong")


@pytest.mark.parametrize(
    "gold", [r"\begin{foo}1\end{foo}", r"\frac{1}{0}", "!!", "x+1} + {3"]
)
def test_a_gold_nobody_understands_is_not_the_answers_fault(gold: str) -> None:
    """Unless the texts are equal, the sample says nothing."""
    assert status(gold, "x+1")[0] == "gold_error"


def test_a_comparison_that_fails_is_named() -> None:
    """The library has no inequation: undecided is not wrong."""
    assert status(r"a \neq b", r"b \neq a") == ("unparsable", "math_verify")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1", "9^{9^9}"),
        ("9^{9^9}", "x"),
        ("1", r"\operatorname{zer\!os}(20000,20000)"),
        ("1", r"\oper\!atorname{eye}(20000)"),
        ("1", '10^{10"0000}'),
        ("1", r"\oper'atorname{eye}(20000)"),
        ("1", "(" * 200 + "x" + ")" * 200),
    ],
)
def test_the_guard_comes_before_the_library(gold: str, answer: str) -> None:
    r"""Also where the library would delete `\!` or quotes and see a bomb."""
    assert status(gold, answer) == ("resource_exceeded", "guard")


def test_an_exhausted_stack_is_a_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deep recursion in the library is no verdict on the answer."""

    # Not `def verify(*_, **__)` calling itself: CPython 3.13.0 has no limit there.
    def deeper(depth: int) -> bool:
        return deeper(depth + 1)

    monkeypatch.setattr(
        "qedtrio.verify.math_verify_safe.verify", lambda *_, **__: deeper(0)
    )

    assert status("x+1", "y+1") == ("resource_exceeded", "math_verify")


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [RUN_OUT_OF_MEMORY, SWALLOW_MEMORY_ERROR],
    ids=["raised", "swallowed"],
)
async def test_running_out_of_memory_is_a_resource(code: str) -> None:
    """Raised or swallowed by the library: undecided, and the worker must go."""
    said = await run_fresh(code)

    assert isinstance(said, dict)
    assert said["status"] == "resource_exceeded"
    assert said["recycle"] is True


@pytest.mark.slow
async def test_a_verify_worker_loads_nothing_of_the_http_side() -> None:
    """Neither Trio nor a server nor a client, and no numpy."""
    loaded = await run_fresh(CHECK_MODULES)

    assert isinstance(loaded, list)
    assert {"math_verify", "sympy"} <= set(loaded)
    unwanted = {"trio", "quart", "hypercorn", "httpx", "httpx2", "h11", "numpy"}
    assert not unwanted & set(loaded)


@pytest.mark.slow
def test_warming_up_proves_known_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose library judges otherwise never gets an item."""
    warm_up()
    monkeypatch.setattr("qedtrio.verify.math_verify_safe.verify", lambda *_, **__: True)

    with pytest.raises(RuntimeError, match="pinned version"):
        warm_up()


def test_a_job_leaves_no_alarm_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Texts of predictions never reach a log, and signals stay the parent's."""
    import signal

    before = signal.getsignal(signal.SIGALRM)
    with caplog.at_level(logging.DEBUG):
        judge({"gold": "x+1", "answer": r"\frac{secret"})
        judge({"gold": r"a \neq b", "answer": r"secret \neq a"})

    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert "secret" not in caplog.text
