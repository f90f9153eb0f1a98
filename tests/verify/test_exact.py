"""Exact comparison of plain numbers."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qedtrio.verify.exact import compare_exactly, parse_plain


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("16", "016"),
        ("5", "5."),
        ("5", "+5.00"),
        ("0", "-0.0"),
        ("0", "-0/7"),
        ("-3", "- 3"),
        (".5", "0.50"),
        ("0.5", r"\frac{1}{2}"),
        ("1/2", r"\dfrac 12"),
        (r"\frac{2}{4}", r"\tfrac{ 3 }{ 6 }"),
        (r"-\frac12", r"\frac{-1}{2}"),
        (r"-\frac{1}{2}", r"\frac{1}{-2}"),
        (r"\frac{-1}{-2}", "0.5"),
        ("5", "$5$"),
        ("5", r"\( 5 \)"),
        ("10/5", "2"),
        ("9" * 5000, "0" + "9" * 5000),
    ],
)
def test_equal_numbers_are_equal_however_written(gold: str, answer: str) -> None:
    """Zeros, signs, fractions and decimals, at any size."""
    assert compare_exactly(gold, answer) is True
    assert compare_exactly(answer, gold) is True


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1", "2"),
        ("5", "-5"),
        ("3.00000001", "3.00000002"),
        ("2", "2.0000001"),
        ("0.0000001", "0.0000002"),
        (r"\frac{63}{400}", r"\frac{64}{400}"),
        ("10/5", "2.0000001"),
        ("0.333", "10/5"),
        ("9" * 5000, "9" * 4999 + "8"),
    ],
)
def test_other_numbers_are_other_however_close(gold: str, answer: str) -> None:
    """No tolerance between exact numbers."""
    assert compare_exactly(gold, answer) is False
    assert compare_exactly(answer, gold) is False


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1/3", "0.333"),
        (r"\frac{1}{4}", "0.2500001"),
        ("1/3", "1/" + "3" * 5000),
    ],
)
def test_what_takes_a_tolerance_or_too_long_is_left_open(
    gold: str, answer: str
) -> None:
    """A decimal may be meant as a rounding of a fraction; others decide that."""
    assert compare_exactly(gold, answer) is None
    assert compare_exactly(answer, gold) is None


@pytest.mark.parametrize(
    "text",
    ["", ".", "-", "x", "1,000", "1 000", r"1\%", "1/0", r"\frac{1}{0}", "1e5", "2 1/2",
     r"2\frac12", r"\frac123", r"\frac1", "1/2/3", "\u0663", "\uff15", "--5", "$5", "0x10"],
)  # fmt: skip
def test_anything_else_is_not_plain(text: str) -> None:
    """Thousands separators, percents, mixed numbers, other digits, 1/0."""
    assert parse_plain(text) is None
    assert compare_exactly("5", text) is None


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6), st.integers(0, 9))
def test_a_decimal_equals_itself_with_more_zeros(value: Decimal, zeros: int) -> None:
    """Trailing zeros say nothing."""
    text = format(value, "f")
    assert compare_exactly(text, text + "0" * zeros) is True


@given(st.fractions(max_denominator=999), st.fractions(max_denominator=999))
def test_fractions_agree_with_exact_arithmetic(one: Fraction, two: Fraction) -> None:
    """Never against the truth, whatever the notation."""
    texts = [
        f"{one.numerator * 6}/{one.denominator * 6}",
        rf"\frac{{{two.numerator}}}{{{two.denominator}}}",
    ]
    assert compare_exactly(*texts) is (one == two)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3), st.fractions())
def test_a_decision_is_always_the_truth(value: Decimal, fraction: Fraction) -> None:
    """Decimal against fraction: equal, other, or left open where close."""
    said = compare_exactly(
        format(value, "f"), f"{fraction.numerator}/{fraction.denominator}"
    )
    if said is not None:
        assert said is (Fraction(value) == fraction)


@given(st.text("0123456789.-+/\\frac{} $()", max_size=30), st.text(max_size=30))
def test_no_text_is_too_odd(one: str, two: str) -> None:
    """Never an exception, and every plain number equals itself."""
    compare_exactly(one, two)
    if parse_plain(one):
        assert compare_exactly(one, one) is True
