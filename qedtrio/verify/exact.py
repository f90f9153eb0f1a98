r"""Compare plain numbers exactly, without a computer algebra system.

Plain are integers, decimals and fractions of integers, such as `016`, `-2.50`,
`3/4`, `\frac{3}{4}`. Their digits are compared as text where possible, so that
size costs nothing and no limit on conversion is met.

Nothing is rounded here. Where one side is a decimal that may be a rounding of
the other's fraction (0.333 for 1/3), this module does not decide.
"""

import re
from dataclasses import dataclass

__all__ = ["compare_exactly", "parse_plain"]

DIGITS = 4000
"""Digits of a fraction's parts; longer ones would need slow arithmetic, and
CPython refuses to convert past 4300."""

_DOLLARS = re.compile(r"\$([^$]*)\$|\\\((.*)\\\)|\\\[(.*)\\\]", re.DOTALL)
_DECIMAL = re.compile(r"([-+]?)\s*(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))")
_SLASH = re.compile(r"([-+]?)\s*([0-9]+)\s*/\s*([0-9]+)")
_FRAC = re.compile(
    r"([-+]?)\s*\\[dtc]?frac\s*"
    r"(?:\{\s*([-+]?)\s*([0-9]+)\s*\}|([0-9]))\s*"
    r"(?:\{\s*([-+]?)\s*([0-9]+)\s*\}|([0-9]))"
)


@dataclass(frozen=True, slots=True)
class Plain:
    """The number ± digits · 10^-scale / denominator, in lowest decimal form.

    Attributes:
        negative: Never of zero.
        digits: Without leading zeros; "0" for zero.
        scale: Digits after the point, without trailing zeros.
        denominator: Without leading zeros, never "0"; "1" unless a fraction.
    """

    negative: bool
    digits: str
    scale: int
    denominator: str


def parse_plain(text: str) -> Plain | None:
    """Read a plain number; None where `text` is anything else."""
    text = text.strip()
    if dollars := _DOLLARS.fullmatch(text):
        text = next(group for group in dollars.groups() if group is not None).strip()
    if match := _DECIMAL.fullmatch(text):
        sign, whole, places, only_places = match.groups()
        return _plain(sign == "-", whole or "", places or only_places or "", "1")
    if match := _SLASH.fullmatch(text):
        return _plain(match[1] == "-", match[2], "", match[3])
    if match := _FRAC.fullmatch(text):
        minuses = [match[1], match[2], match[5]].count("-")
        over, under = match[3] or match[4], match[6] or match[7]
        return _plain(minuses % 2 == 1, over, "", under)
    return None


def compare_exactly(gold: str, answer: str) -> bool | None:
    """Compare two plain numbers.

    Returns:
        Whether they are equal; None where either is not plain, or where only a
        tolerance can decide, or where the parts of a fraction are too long.
    """
    one, two = parse_plain(gold), parse_plain(answer)
    if one is None or two is None:
        return None
    if one == two:
        return True
    if one.denominator == two.denominator == "1":
        return False
    return _compare_fractions(one, two)


def _compare_fractions(one: Plain, two: Plain) -> bool | None:
    lengths = [len(n.digits) + n.scale + len(n.denominator) for n in (one, two)]
    if max(lengths) > DIGITS:
        return None
    (a, b), (c, d) = _ratio(one), _ratio(two)
    if a * d == b * c:
        return True
    # A decimal with places may be meant as a rounding of a true fraction.
    if (one.scale and c % d) or (two.scale and a % b):
        return None
    return False


def _ratio(number: Plain) -> tuple[int, int]:
    over = int(number.digits) * (-1 if number.negative else 1)
    return over, int(number.denominator) * 10**number.scale


def _plain(negative: bool, whole: str, places: str, denominator: str) -> Plain | None:
    denominator = denominator.lstrip("0")
    if not denominator:
        return None
    places = places.rstrip("0")
    digits = (whole + places).lstrip("0")
    if not digits:
        return Plain(negative=False, digits="0", scale=0, denominator="1")
    return Plain(negative, digits, len(places), denominator)
