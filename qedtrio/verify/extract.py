r"""Find the answer in a model's response; pure, and linear in its length.

The answer is the content of the last box, `\boxed{…}` or `\fbox{…}`, after the
reasoning. Nothing else counts: a response without a box holds no answer,
whatever numbers stand in it, and a last box that is never closed is
unparsable, however good an earlier box looks. A box that lies inside another is
part of the outer one. `\boxed 5` counts; a bare mention such as "put it in
\boxed." does not.

Runs in the daemon on whatever a client sends, so every step is bounded: the
search for the last box is a substring search from the end, and braces are
read one by one only within `REACH` characters around it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from qedtrio.results import VerdictStatus

__all__ = ["REASONING", "Delimiters", "Extraction", "extract_answer", "extract_gold"]

REACH = 32_768
"""Characters around the last box in which an enclosing box is looked for, and
in which the last box must close; twice `answer_chars` where that is more."""

MENTIONS = 100
"""Boxes without content, such as "in \\boxed.", that are skipped at most."""

_COMMAND = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s{0,1000}")
_TOKEN = re.compile(
    r"(?P<box>\\(?:boxed|fbox)(?![A-Za-z])\s*\{)"
    r"|\\(?!\\(?:boxed|fbox)(?![A-Za-z]))."  # an escape; `\\boxed` is still a box
    r"|\{|(?P<close>\})",
    re.DOTALL,
)
_BARE = re.compile(r"[-+]?(?:\.?\d|[(\[|]|\\(?![)\]\s])|[A-Za-z](?![A-Za-z]))")
_BARE_IN_MATHS = re.compile(r"(?:(?![.,;:!?]\s)[^$\n]){1,200}?(?=\s*(?:\$|\\\)|\\\]))")
_BARE_WORD = re.compile(r"[^\s$]{1,200}")
_BLANK = re.compile(r"(?:\s|\\[\s,;:!]|[~${}])*")


@dataclass(frozen=True, slots=True)
class Delimiters:
    """What surrounds reasoning.

    Attributes:
        opening: Reasoning that starts with it and never ends leaves no answer.
        closing: Everything up to its last occurrence is reasoning.
    """

    opening: str
    closing: str


REASONING = (Delimiters("<think>", "</think>"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """An answer, or why there is none: exactly one of the two is set.

    Attributes:
        answer: Content of the box, stripped, never empty.
        status: Verdict where no comparison is needed.
        reason: One short sentence that goes with `status`.
    """

    answer: str | None = None
    status: VerdictStatus | None = None
    reason: str = ""


def extract_answer(
    response: str,
    *,
    answer_chars: int,
    reasoning: Sequence[Delimiters] = REASONING,
) -> Extraction:
    """Find the answer in `response`.

    Args:
        response: All that the model said.
        answer_chars: Longest answer accepted; applied to the answer alone.
        reasoning: Delimiters of reasoning, all of them looked for.

    Returns:
        The answer, or one of `no_answer`, `empty_answer`, `unparsable`.
    """
    rest = _after_reasoning(response, reasoning)
    if rest is None:
        return _none(VerdictStatus.NO_ANSWER, "the reasoning never ends")
    found = _last_box(rest, max(REACH, 2 * answer_chars))
    if found is None:
        return _none(VerdictStatus.NO_ANSWER, "no box")
    if isinstance(found, Extraction):
        return found
    return _accept(found, answer_chars)


def extract_gold(gold: str, *, answer_chars: int) -> Extraction:
    """Unwrap a reference answer, bare or boxed.

    Returns:
        The answer, or the status `gold_error`.
    """
    found = _last_box(gold, max(REACH, 2 * answer_chars))
    if isinstance(found, Extraction):
        return _none(VerdictStatus.GOLD_ERROR, f"gold: {found.reason}")
    accepted = _accept(gold if found is None else found, answer_chars)
    if accepted.answer is None:
        return _none(VerdictStatus.GOLD_ERROR, f"gold: {accepted.reason}")
    return accepted


def _none(status: VerdictStatus, reason: str) -> Extraction:
    return Extraction(status=status, reason=reason)


def _after_reasoning(response: str, reasoning: Sequence[Delimiters]) -> str | None:
    start = 0
    for pair in reasoning:
        if (at := response.rfind(pair.closing)) >= 0:
            start = max(start, at + len(pair.closing))
    if any(response.find(pair.opening, start) >= 0 for pair in reasoning):
        return None
    return response[start:]


def _accept(content: str, answer_chars: int) -> Extraction:
    too_long = f"longer than {answer_chars} characters"
    if len(content) > 2 * max(REACH, 2 * answer_chars):  # only a bare gold is
        return _none(VerdictStatus.UNPARSABLE, too_long)
    answer = _unwrap(content)
    if _BLANK.fullmatch(answer):
        return _none(VerdictStatus.EMPTY_ANSWER, "the answer is empty")
    if len(answer) > answer_chars:
        return _none(VerdictStatus.UNPARSABLE, too_long)
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in answer):
        return _none(VerdictStatus.UNPARSABLE, "holds characters that are no text")
    return Extraction(answer=answer)


def _last_box(text: str, reach: int) -> str | Extraction | None:
    """Content of the last box; None without one, a status where it is broken."""
    for start in islice(_boxes_from_the_end(text), MENTIONS):
        command = _COMMAND.match(text, start)
        if command is None:  # \boxedanswer
            continue
        after = command.end()
        if after == len(text):
            return _none(VerdictStatus.UNPARSABLE, "the last box is cut off")
        if text[after] == "{":
            return _braced_box(text, start, reach)
        if _BARE.match(text, after):
            outer = _braced_box(text, start, reach, bare=True)
            return _bare_content(text, after) if outer is None else outer
    return None


def _boxes_from_the_end(text: str) -> Iterator[int]:
    names = ("\\boxed", "\\fbox")
    at = [text.rfind(name) for name in names]
    while (last := max(at)) >= 0:
        yield last
        which = at.index(last)
        at[which] = text.rfind(names[which], 0, last)


def _braced_box(
    text: str, last: int, reach: int, *, bare: bool = False
) -> str | Extraction | None:
    """Content of the outermost closed box that holds position `last`.

    None where `bare`, the last box has no braces, and nothing encloses it.
    """
    low = max(0, last - reach)
    firsts = (text.find(name, low, last) for name in ("\\boxed", "\\fbox"))
    begin = min((at for at in firsts if at >= 0), default=last)
    end = min(len(text), last + reach)
    if outermost := _enclosing(text, begin, end, last):
        return text[outermost[0] : outermost[1]]
    if bare:
        return None
    cut = end == len(text)
    why = "is never closed" if cut else f"does not close within {reach} characters"
    return _none(VerdictStatus.UNPARSABLE, f"the last box {why}")


def _enclosing(text: str, begin: int, end: int, last: int) -> tuple[int, int] | None:
    """Span of the content of the outermost closed box that holds `last`."""
    outermost: tuple[int, int] | None = None
    opened: list[tuple[int, int] | None] = []  # braces; None: not of a box
    boxes = 0
    for token in _TOKEN.finditer(text, begin, end):
        if token["box"]:
            opened.append((token.start(), token.end()))
            boxes += 1
        elif token.group() == "{":
            opened.append(None)
        elif token["close"] and opened and (box := opened.pop()):
            boxes -= 1
            if box[0] <= last < token.start():
                outermost = (box[1], token.start())
        if token.start() >= last and not boxes:
            break
    return outermost


def _bare_content(text: str, after: int) -> str:
    match = _BARE_IN_MATHS.match(text, after) or _BARE_WORD.match(text, after)
    assert match, "the character at `after` is neither space nor dollar"
    content = match.group().rstrip(".,;:!?*")
    # The brace or bracket that ends the surroundings is none of the answer's.
    while content.endswith("}") and content.count("{") < content.count("}"):
        content = content[:-1]
    return content


def _unwrap(content: str) -> str:
    """Drop the commands of nested boxes, and braces around the whole."""
    content = _strip(_COMMAND.sub(" ", content))
    if not content.startswith("{"):
        return content
    partner: dict[int, int] = {}
    opened: list[int] = []
    for token in _TOKEN.finditer(content):
        if token.group() == "{":
            opened.append(token.start())
        elif token["close"] and opened:
            partner[opened.pop()] = token.start()
    low, high = 0, len(content)
    while partner.get(low) == high - 1:
        low, high = low + 1, high - 1
        while low < high and content[low].isspace():
            low += 1
        while low < high and content[high - 1].isspace():
            high -= 1
    return _strip(content[low:high])


def _strip(content: str) -> str:
    r"""Strip white space, and the backslash that a final `\ ` would leave."""
    content = content.lstrip()
    end = len(content)
    while True:
        while end and content[end - 1].isspace():
            end -= 1
        start = end
        while start and content[start - 1] == "\\":
            start -= 1
        if (end - start) % 2 == 0:
            return content[:end]
        end -= 1
