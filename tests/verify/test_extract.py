"""Extraction: what counts as an answer, and that hostile text costs little."""

import string
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qedtrio.verify.extract import (
    REACH,
    Delimiters,
    Extraction,
    extract_answer,
    extract_gold,
)


def extract(response: str) -> Extraction:
    """With the default limit."""
    return extract_answer(response, answer_chars=2000)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{5}", "5"),
        (r"\fbox{5}", "5"),
        ("\\boxed \n {\n5 }", "5"),
        ("\\\\boxed{5}", "5"),
        (r"$\boxed{\frac{1}{2}}}$", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left[0,1\right\}}", r"\left[0,1\right\}"),
        (r"\boxed{a\\{b}}", r"a\\{b}"),
        (r"\boxed{1} or rather \boxed{2}, see \fbox {3}", "3"),
        (r"\boxed{ {5} }", "5"),
        (r"\boxed{5\ }", "5"),
        (r"\boxed{5\\ }", r"5\\"),
        (r"\boxed{{1},{2}}", "{1},{2}"),
    ],
)
def test_the_last_box_is_the_answer(response: str, answer: str) -> None:
    """Either command, spaces before the brace, escaped braces inside."""
    assert extract(response).answer == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{x=\fbox{5}}", "x= {5}"),
        (r"\boxed{\boxed{1},\boxed{2}}", "{1}, {2}"),
        (r"\boxed{\text{of } {\boxed 7}}", r"\text{of } { 7}"),
        (r"\boxed{unfinished \boxed{5}", "5"),
    ],
)
def test_a_box_inside_another_is_part_of_it(response: str, answer: str) -> None:
    """The outermost closed box counts, without the commands of inner ones."""
    assert extract(response).answer == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed 5", "5"),
        (r"so $\boxed 5$.", "5"),
        (r"\(\boxed -2\)", "-2"),
        (r"$\boxed\frac{1}{2}$", r"\frac{1}{2}"),
        (r"$\boxed 2\sqrt{3}$", r"2\sqrt{3}"),
        (r"\boxed x, then", "x"),
        (r"{ \boxed 5}", "5"),
        (r"**\boxed 5**", "5"),
    ],
)
def test_a_box_without_braces_counts(response: str, answer: str) -> None:
    """Up to the end of the formula where there is one, else of the word."""
    assert extract(response).answer == answer


@pytest.mark.parametrize(
    "mention",
    [
        r"in \boxed.",
        r"use \boxed as asked",
        r"the \(\boxed\) command",
        r"\boxedtext{6}",
    ],
)
def test_a_mention_of_the_command_is_no_box(mention: str) -> None:
    """It neither hides the answer before it nor is an answer itself."""
    assert extract(rf"\boxed{{5}}, {mention}").answer == "5"
    assert extract(mention).status == "no_answer"


@pytest.mark.parametrize(
    "response",
    ["", "The answer is 5.", "#### 5", "$5$", "boxed{5}", r"\box{5}"],
)
def test_numbers_outside_a_box_are_never_salvaged(response: str) -> None:
    """Without a box there is no answer."""
    assert extract(response).status == "no_answer"


@pytest.mark.parametrize(
    "content", ["", "  ", "\n", "{}", "{ { } }", r"\,", r"~\ ", "$$"]
)
def test_an_empty_box_is_an_empty_answer(content: str) -> None:
    """Even after a good box: the last one counts."""
    assert extract(rf"\boxed{{5}} \boxed{{{content}}}").status == "empty_answer"


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{\frac{1}{",
        r"\boxed{5} but \boxed{6",
        r"\boxed{5} so \boxed",
        r"\boxed{5\}",
        "\\boxed{a\0b}",
        "\\boxed{\ud800}",
        r"\boxed{%s}" % ("9" * 2001),
        r"\boxed{%s}" % ("{}" * REACH),
    ],
)
def test_a_broken_box_is_unparsable(response: str) -> None:
    """A last box that is cut off, too long or no text is named, not replaced."""
    assert extract(response).status == "unparsable"


def test_the_limit_is_on_the_answer_alone() -> None:
    """Length of the response, and wrapping of the box, do not count."""
    response = "x" * 100_000 + r"\boxed{" * 2000 + "9" * 20 + "}" * 2000
    assert extract_answer(response, answer_chars=20).answer == "9" * 20
    assert extract_answer(response, answer_chars=19).status == "unparsable"


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (r"<think>\boxed{5}</think> \boxed{6}", "6"),
        (r"\boxed{5}</think> \boxed{6}", "6"),
        (r"<think>a</think><think>\boxed{5}</think>\boxed{6}", "6"),
        (r"<think>\boxed{5}</think> so it is 6", "no_answer"),
        (r"<think>\boxed{5}", "no_answer"),
        (r"<think>a</think>\boxed{6}<think>", "no_answer"),
    ],
)
def test_reasoning_holds_no_answer(response: str, said: str) -> None:
    """Finished reasoning is cut away; unfinished reasoning leaves nothing."""
    found = extract(response)
    assert said in (found.answer, found.status)


def test_delimiters_can_be_chosen() -> None:
    """Several kinds of reasoning, or none."""
    own = (Delimiters("<a>", "</a>"), Delimiters("[THINK]", "[/THINK]"))
    text = r"<a>\boxed{1}</a>[THINK]\boxed{2}[/THINK]\boxed{3}<think>"

    assert extract_answer(text, answer_chars=9, reasoning=own).answer == "3"
    assert extract_answer(text, answer_chars=9, reasoning=()).answer == "3"
    assert extract(text).status == "no_answer"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("5", "5"), (" 5 ", "5"), (r"\boxed{5}", "5"), (r"so \boxed{x}.", "x")],
)
def test_gold_is_bare_or_boxed(gold: str, answer: str) -> None:
    """The same unwrapping on both sides."""
    assert extract_gold(gold, answer_chars=2000).answer == answer


@pytest.mark.parametrize(
    "gold", ["", " ", r"\boxed{}", r"\boxed{5", "9" * 2001, "\ud800"]
)
def test_a_useless_gold_is_a_gold_error(gold: str) -> None:
    """Never the model's fault."""
    assert extract_gold(gold, answer_chars=2000).status == "gold_error"


PIECES = [
    "\\boxed", "\\fbox", "{", "}", "\\{", "\\", " ", "$", "5", "x", ".", "\n",
    "<think>", "</think>", "\\)", "\0", "\ud800", "é",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_gets_exactly_one_of_answer_and_status(text: str) -> None:
    """Never an exception; an answer is stripped, and fit to be sent."""
    for found in (extract(text), extract_gold(text, answer_chars=2000)):
        assert (found.answer is None) != (found.status is None)
        assert bool(found.reason) == (found.status is not None)
        if found.answer is not None:
            assert found.answer == found.answer.strip() != ""
            found.answer.encode()


@given(st.text(string.ascii_letters + string.digits + "+-*/(),. ^_=<>", min_size=1))
def test_boxing_an_answer_and_extracting_it_gives_it_back(answer: str) -> None:
    """Also twice: extraction of a boxed answer is idempotent."""
    once = extract(f"\\boxed{{{answer}}}").answer
    assert once == (answer.strip() or None)
    if once is not None:
        assert extract(f"\\boxed{{{once}}}").answer == once


SIZE = 16_000_000

HOSTILE = {
    "pairs": ("\\boxed{", "{}", ""),
    "openings": ("\\boxed{", "{", ""),
    "openings_before": ("", "{", "\\boxed{5}"),
    "boxes": ("", "\\boxed{5}", ""),
    "unclosed": ("", "\\boxed{", ""),
    "mentions": ("", "\\boxed.", ""),
    "longer_words": ("", "\\boxedx", ""),
    "half_words": ("", "\\boxe", ""),
    "backslashes": ("", "\\", ""),
    "spaces": ("\\boxed", " ", ""),
    "spaced_mentions": ("", "\\boxed" + " " * 100_000, "."),
    "escapes": ("\\boxed{", "\\{", ""),
    "escaped_spaces": ("\\boxed{5", "\\ ", "}"),
    "reasoning": ("", "<think>", ""),
    "nothing": ("", "x", ""),
}
"""Name → what a response of `SIZE` characters begins with, repeats, ends with."""


def test_a_box_at_the_edge_of_reach_costs_little() -> None:
    """The part that is read brace by brace is bounded, and read once."""
    for piece in ("{}", "\\ ", "\\boxed{5}", "\\boxed 5", "\\\\"):
        began = perf_counter()
        extract("\\boxed{" + piece * (REACH // len(piece) - 9) + "}")

        assert perf_counter() - began < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_sixteen_megabytes_of_hostile_text_cost_little(name: str) -> None:
    """A response as long as a request may be holds the daemon for a moment only.

    Some 50 ms are usual; the bound leaves room for a busy machine, and none
    for anything that grows faster than the text.
    """
    start, piece, end = HOSTILE[name]
    text = start + piece * (SIZE // len(piece)) + end
    began = perf_counter()
    extract(text)
    extract_gold(text, answer_chars=2000)

    assert perf_counter() - began < 2
