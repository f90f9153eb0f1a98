r"""Refuse expressions that would cost seconds or gigabytes to evaluate.

Works on the text alone, so a refusal costs microseconds. It is no proof of
cheapness: what slips through meets the deadline and the memory limit of its
worker. It refuses little that is honest, because equal texts and plain numbers
have been decided before it is asked.

Sources: measured inputs against math-verify 0.9 without gmpy2; `math.gcd` of
two powers with seven-digit exponents ignores every signal for a minute.
"""

import math
import re
from collections.abc import Callable, Iterator

__all__ = ["find_excess"]

CHARS = 20_000
DEPTH = 50
"""Nested braces, brackets and parentheses; 200 parse in 4 s."""
DIGITS = 4000
EXPONENT = 9999
"""Largest exponent, factorial or binomial argument; one more digit and exact
evaluation takes seconds."""
TOWER = 3
"""Levels within an exponent that are refused even with letters in them."""
MAX_LEVELS = 20
"""Levels that are worked out; bounds the time and the recursion of doing so."""

_MATRICES = "eye|zeros|ones|diag|hstack|vstack"
_DECOMPOSITIONS = (
    "svd|SVD|eig|eigen|eigenvals|eigenvalues|eigenvects|eigenvectors|diagonalize"
    "|orth|ortho|orthogonal|orthogonalize|nullspace|rref"
)
DENSE = re.compile(f"{_MATRICES}|{_DECOMPOSITIONS}")
"""Operators that build or decompose dense matrices of any size."""

_OPERATOR = re.compile(r"\\operatorname\s*\*?\s*(?:\{([^{}]*)\}|)")
_LONG = re.compile(r"[0-9]{5,}")
_NUMERIC_NAME = re.compile(r"\\(?:pi|cdot|times|[dt]?frac|sqrt)(?![A-Za-z])")
_LARGE_FACTORIAL = re.compile(r"(?:[0-9]{5,}|!!)!")
_FACTORIAL_OF_FACTORIAL = re.compile(r"![^!]*!|(?:[89]|[0-9]{2,})!")
_SMALL_POWER = re.compile(r"(?<![0-9.])([0-9]{1,4})\^\{?([0-9]{1,2})\}?(?![0-9.^])")
_E_NOTATION = re.compile(r"[0-9.][eE][-+]?[0-9]{5,}")
_COMBINATORICS = re.compile(r"\\[dt]?binom|\\choose|\\Gamma|\\Beta")
_SPACE = re.compile(r"\s+|\\[,;:!]|\\left|\\right")
_ATOM = re.compile(r"[0-9.]+|\\[A-Za-z]+|.", re.DOTALL)
_OPEN, _CLOSE = "{([", "})]"


def find_excess(text: str) -> str | None:
    """Say what makes `text` too expensive, or None."""
    if len(text) > CHARS:
        return f"longer than {CHARS} characters"
    if sum(char.isdigit() for char in text) > DIGITS:
        return f"more than {DIGITS} digits"
    if _depth(text) > DEPTH:
        return f"nested deeper than {DEPTH}"
    squeezed = _SPACE.sub("", text).replace("**", "^")
    return next((said for check in _CHECKS if (said := check(squeezed))), None)


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in text:
        if char in _OPEN:
            depth += 1
            deepest = max(deepest, depth)
        elif char in _CLOSE:
            depth = max(0, depth - 1)
    return deepest


def _dense_operator(text: str) -> str | None:
    for match in _OPERATOR.finditer(text):
        name = match[1] or ""
        # A name that is not plain letters could be mended into a listed one.
        if DENSE.fullmatch(name) or not re.fullmatch("[A-Za-z]+", name):
            return "an operator that builds matrices of any size"
    return None


def _large_factorial(text: str) -> str | None:
    said = "a factorial too large to evaluate"
    if "!" not in text:
        return None
    if _LARGE_FACTORIAL.search(text):
        return said
    opened: list[int] = []
    for at, char in enumerate(text):
        if char in _OPEN:
            opened.append(at)
        elif char in _CLOSE and opened:
            start = opened.pop()
            if text[at + 1 : at + 2] == "!" and _is_large(text[start + 1 : at]):
                return said
    return None


def _is_large(argument: str) -> bool:
    """Whether the factorial of what stands in parentheses is out of reach."""
    if _LONG.search(argument) or _FACTORIAL_OF_FACTORIAL.search(argument):
        return True
    return "^" in argument and _is_tall(argument)


def _large_binomial(text: str) -> str | None:
    if _COMBINATORICS.search(text) and (_LONG.search(text) or "!" in text):
        return "a binomial too large to evaluate"
    return None


def _large_e_notation(text: str) -> str | None:
    return "an exponent too large to evaluate" if _E_NOTATION.search(text) else None


def _large_exponent(text: str) -> str | None:
    for exponent in _exponents(text):
        if _LONG.search(exponent):
            return "an exponent too large to evaluate"
        if "^" in exponent and _is_tall(exponent):
            return "a tower of exponents"
    return None


_CHECKS: tuple[Callable[[str], str | None], ...] = (
    _dense_operator,
    _large_factorial,
    _large_binomial,
    _large_e_notation,
    _large_exponent,
)


def _exponents(text: str) -> Iterator[str]:
    """Each exponent of `text`, nested ones too, with its own exponents."""
    at = text.find("^")
    while at >= 0:
        yield text[at + 1 : _end_of_factor(text, at + 1)]
        at = text.find("^", at + 1)


def _end_of_factor(text: str, start: int) -> int:
    """End of the factor at `start`, with what it is raised to."""
    end = _end_of_atom(text, start)
    while end < len(text) and text[end] == "^":
        end = _end_of_atom(text, end + 1)
    return end


def _end_of_atom(text: str, start: int) -> int:
    if text[start : start + 1] in ("-", "+"):
        start += 1
    if start >= len(text):
        return len(text)
    if text[start] not in _OPEN:
        match = _ATOM.match(text, start)
        return match.end() if match else len(text)
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in _OPEN) - (text[at] in _CLOSE)
        if depth == 0:
            return at + 1
    return len(text)


def _is_tall(text: str) -> bool:
    """Whether an exponent or argument that holds exponents is out of reach."""
    if text.count("^") > MAX_LEVELS:
        return True
    value = _power(text)
    if value is not None:
        return abs(value) > EXPONENT
    letters = re.sub(r"[e^]", "", _NUMERIC_NAME.sub("", text))
    if re.search("[A-Za-z]", letters):
        return text.count("^") >= TOWER
    # All numbers: only one small power among them, as in 2^{2^3-1}, is let by.
    small = _SMALL_POWER.search(text)
    if small is None or text.count("^") > 1:
        return True
    return (_power(f"{small[1]}^{small[2]}") or 0) > EXPONENT


def _power(text: str) -> float | None:
    """Value of a number or a tower of them, infinity beyond any use."""
    text = _strip_group(text)
    if re.fullmatch(r"[-+]?[0-9]+(?:\.[0-9]*)?", text):
        return float(text[:400])
    end = _end_of_atom(text, 0)
    if text[end : end + 1] != "^" or _end_of_factor(text, end + 1) != len(text):
        return None
    base, exponent = _power(text[:end]), _power(text[end + 1 :])
    if base is None or exponent is None:
        return None
    try:
        return float(abs(base) ** exponent)
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _strip_group(text: str) -> str:
    while text[:1] in ("{", "(") and _end_of_atom(text, 0) == len(text):
        text = text[1:-1]
    return text
