"""How an item is read and compared: one flat set of named options.

A client names options flatly; the domain keeps them by who needs them, so that
extraction knows nothing of comparing, and a cache is keyed by what can change a
verdict and by nothing else.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Literal

__all__ = [
    "DEFAULT_OPTIONS",
    "ComparisonOptions",
    "ExtractionMode",
    "ExtractionOptions",
    "VerifyOptions",
]

ExtractionMode = Literal["boxed", "answer_is", "hash", "choice", "tool_output", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionOptions:
    r"""Where the answer stands in a response.

    Attributes:
        extract: Places to look, in order; the first that is there decides, also
            where what it holds is empty or broken. `boxed` is the last
            `\boxed{…}`; `answer_is` a last line or sentence such as "the answer
            is 5" or "Answer: 5"; `hash` what follows the last `####`; `choice`
            the last option letter that stands alone, such as "(C)";
            `tool_output` the output of the last tool call; `whole` all of a
            response of one line.
        reasoning: Pairs of opening and closing delimiters. What they enclose
            is no answer; reasoning that never ends leaves none.
        boxes: `last`, or `all`: the boxes of the final passage make a list.
        answer_chars: Longest answer accepted; None for the configured limit,
            which it may not exceed.
    """

    extract: tuple[ExtractionMode, ...] = ("boxed",)
    reasoning: tuple[tuple[str, str], ...] = (("<think>", "</think>"),)
    boxes: Literal["last", "all"] = "last"
    answer_chars: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    r"""When two answers count as equal.

    Attributes:
        answers: What answers are: `math`; `text`, compared as words; or
            `choice`, option letters.
        strict: Whether names of variables and kinds of brackets matter.
        order_matters: Whether the order of several values does; None leaves it
            to their brackets: `(1,2)` is ordered, `\{1,2\}` and `1,2` are not.
        float_rounding: Decimal places to which a decimal must agree. None: two
            decimals must be equal, and a decimal may stand for another kind
            of number to a relative 2e-6.
        numeric_precision: Significant digits to which numbers must agree; None
            for all of them, wherever no decimal is among them.
        allow_set_relation_comp: Whether a relation such as `1<x<2` is accepted
            for the interval `(1,2)`; the reverse always is.
        percent_as_number: Whether `50\%` is accepted for 50, and 50 for `50\%`.
        log_base: What `\log` without a base means.
    """

    answers: Literal["math", "text", "choice"] = "math"
    strict: bool = True
    order_matters: bool | None = None
    float_rounding: int | None = None
    numeric_precision: int | None = None
    allow_set_relation_comp: bool = False
    percent_as_number: bool = False
    log_base: Literal["10", "e"] = "10"

    def to_job(self) -> dict[str, object]:
        """Plain values for a worker; what has its default is left out."""
        return {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) != item.default
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Everything that an item's options say.

    Attributes:
        deadline_seconds: Work on the item; None for the configured limit,
            which it may not exceed.
    """

    deadline_seconds: float | None = None
    extraction: ExtractionOptions = ExtractionOptions()
    comparison: ComparisonOptions = ComparisonOptions()

    @classmethod
    def of(cls, given: Mapping[str, object]) -> "VerifyOptions":
        """Sort flat options by who needs them.

        Args:
            given: Name → value of the right type; see `presets.build_options`
                for what a client wrote.
        """
        rest = dict(given)

        def take(kind: type) -> dict[str, object]:
            names = {item.name for item in fields(kind)} & set(rest)
            return {name: rest.pop(name) for name in names}

        extraction = ExtractionOptions(**take(ExtractionOptions))  # type: ignore[arg-type]  # the caller's promise
        comparison = ComparisonOptions(**take(ComparisonOptions))  # type: ignore[arg-type]  # likewise
        return cls(extraction=extraction, comparison=comparison, **rest)  # type: ignore[arg-type]  # likewise

    def to_flat(self) -> dict[str, object]:
        """The inverse of `of`."""
        return {
            "deadline_seconds": self.deadline_seconds,
            **asdict(self.extraction),
            **asdict(self.comparison),
        }


DEFAULT_OPTIONS = VerifyOptions()
