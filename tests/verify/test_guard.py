"""The guard against expensive expressions."""

from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qedtrio.verify.guard import find_excess


@pytest.mark.parametrize(
    "text",
    [
        "12345678", "1.5e-7", "x^{2023}", "10^{-20}", "e^{x^2}", "e^{-x^{2}/2}", "2^{2^n}",
        "2^{3^2}", "2^{2^3-1}", "x^{2^{10}}", "e^{e^{x}}", "n!", "7!!", "2023!", "(n^2)!",
        "(3!)!", "(n!)^2", r"\frac{1}{2004!}", r"\binom{2023}{5}",
        r"\operatorname{Aut}(G)", r"\operatorname{tr} A", r"\sum_{n=1}^{\infty}\frac{1}{n^2}",
        r"\left(\frac{25\cdot 3^{1/3}}{4}\right)^{1/4}", "{" * 50 + "1" + "}" * 50,
        "1" * 4000,
    ],
)  # fmt: skip
def test_honest_expressions_pass(text: str) -> None:
    """What problems really have as answers is compared."""
    assert find_excess(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^9}", "9^9^9", "9**9**9", "(9^9)^{(9^9)}", "{5}^{{5}^{{5}^{5}}}",
        r"\left(2\right)^{\left(10^{10}\right)}", r"2^{ \, 10000000 }", "e^{e^{e^{3}}}",
        "x^{x^{x^{x^{x}}}}", r"3^{2\cdot 9^9}", r"\sin(7^{e^{e^{e^{10e}}}}+1)",
        r"\frac{3^{5000000}+1}{2^{8000000}+1}", r"4^{\frac{11111}{2}}",
        "10000000!", "(10^{10})!", r"\left(10^{10}\right)!", "((3!)!)!", "(10!)!", "3!!!",
        r"\binom{1000000}{500000}", r"\binom{100!}{2}", "1.5e999999999",
        r"\operatorname{eye}(5)", r"\operatorname{zeros}(20000,20000)",
        r"\operatorname {eye} (5)", r"\operatorname*{rref}", r"\operatorname{e\!ye}(5)",
        r"\operatorname eye(5)",
        "(" * 51 + "1" + ")" * 51, "1" * 4001, "x+" * 10_001,
    ],
)  # fmt: skip
def test_expensive_expressions_are_named(text: str) -> None:
    """Power towers, factorials, dense matrices, deep nesting, sheer length."""
    assert find_excess(text)


@given(st.text("0123456789^!{}()\\binomfrac eEx*+-.", max_size=200))
def test_no_text_is_too_odd(text: str) -> None:
    """Never an exception."""
    find_excess(text)


@pytest.mark.parametrize(
    "piece",
    [
        "^",
        "!",
        "^{",
        "x^{",
        "^2",
        "(",
        "a!",
        "a^b",
        "{}",
        "\\left",
        "2^",
        "(x)!",
        "\\operatorname",
    ],
)
def test_the_guard_itself_is_cheap(piece: str) -> None:
    """It takes milliseconds on the longest text it looks at."""
    began = perf_counter()
    find_excess((piece * 20_000)[:20_000])

    assert perf_counter() - began < 1
