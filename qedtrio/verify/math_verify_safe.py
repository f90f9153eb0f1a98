r"""math-verify in the one configuration that does not guess.

Only `\boxed{…}` is parsed, the first match or nothing, with no unit stripping
and no salvage of numbers from text. Both sides are boxed; the reference comes
first, because the library's comparison is not symmetric. The library's own
timeouts are off: they rely on one alarm signal, which C code ignores, and turn
an overrun into `False`. The parent's deadline ends the process instead.

Parsed objects never leave this module and are never turned into text: `str()`
of a power tower takes longer than everything else together.
"""

import logging

from latex2sympy2_extended import NormalizationConfig
from latex2sympy2_extended.math_normalization import normalize_latex
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, MatrixBase

from qedtrio.results import VerdictStatus
from qedtrio.verify.guard import find_excess
from qedtrio.verify.model import Judgement

__all__ = ["compare_by_math_verify"]

METHOD = "math_verify"

_NORMALISATION = NormalizationConfig(
    basic_latex=True,
    units=False,
    malformed_operators=True,
    nits=True,
    boxed="last",
)
_EXTRACTION = (
    LatexExtractionConfig(
        boxed_match_priority=0,
        try_extract_without_anchor=False,
        normalization_config=_NORMALISATION,
    ),
)

for _name in ("math_verify", "latex2sympy2_extended"):
    # Warns once that timeouts are off, and would quote predictions.
    logging.getLogger(_name).setLevel(logging.CRITICAL)


def compare_by_math_verify(gold: str, answer: str) -> Judgement:
    """Compare two LaTeX expressions, unboxed.

    Takes as long and as much memory as it takes: call it where it can be
    killed.

    Raises:
        MemoryError: Where the library lets it through.
    """
    for side, text in (("gold", gold), ("answer", answer)):
        if excess := _find_excess(text):
            return _judge(VerdictStatus.RESOURCE_EXCEEDED, f"{side}: {excess}", "guard")
    parsed_gold = _parse(gold)
    if not parsed_gold:
        return _judge(VerdictStatus.GOLD_ERROR, "gold: cannot be parsed")
    parsed_answer = _parse(answer)
    if not parsed_answer:
        return _judge(VerdictStatus.UNPARSABLE, "the answer cannot be parsed")
    return _compare(parsed_gold, parsed_answer)


def _compare(gold: list[object], answer: list[object]) -> Judgement:
    try:
        if _verify(gold, answer):
            return _judge(VerdictStatus.CORRECT, "equivalent")
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001  # a library of many exceptions
        return _blame(gold, type(error).__name__)
    return _judge(VerdictStatus.WRONG, "not equivalent")


def _blame(gold: list[object], error: str) -> Judgement:
    """Name the side that broke the comparison: gold that cannot equal itself."""
    try:
        fine = _verify(gold, gold)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001
        fine = False
    if not fine:
        return _judge(VerdictStatus.GOLD_ERROR, f"gold: cannot be compared: {error}")
    return _judge(VerdictStatus.UNPARSABLE, f"the answer cannot be compared: {error}")


def _parse(text: str) -> list[object]:
    if not _is_balanced(text):
        return []
    found = parse(
        f"\\boxed{{{text}}}",
        extraction_config=_EXTRACTION,
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
        raise_on_error=True,
    )
    return [item for item in found if isinstance(item, Basic | MatrixBase)]


def _verify(gold: list[object], answer: list[object]) -> bool:
    return bool(
        verify(gold, answer, strict=True, timeout_seconds=None, raise_on_error=True)
    )


def _find_excess(text: str) -> str | None:
    r"""Look also at what the parser will see: it deletes `\!` and quotes, for one."""
    return find_excess(text) or find_excess(
        normalize_latex(text, config=_NORMALISATION)
    )


def _is_balanced(text: str) -> bool:
    r"""Whether the library finds the end of the box where we put it.

    It would cut the gold `5} + {3` to 5, and counts escaped braces like others.
    """
    depth = 0
    for char in text:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0


def _judge(status: VerdictStatus, reason: str, method: str = METHOD) -> Judgement:
    return Judgement(status=status, method=method, reason=reason)
