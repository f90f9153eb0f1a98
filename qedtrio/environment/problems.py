"""Problems: what is asked, what counts as right, and a scripted attempt.

The bundled ones are our own and need no network, so that `qedtrio demo` plays
real episodes on a bare machine. Some of their scripts end badly on purpose: a
demonstration without a wrong answer or a timed-out run would say little.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import msgspec

from qedtrio.results import RunStatus, VerdictStatus

__all__ = ["Cell", "MarkingItem", "Problem", "Script", "bundled_problems"]

RESOURCE = "problems.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a scripted attempt, and how it must end.

    Attributes:
        code: Python source; later cells see what earlier ones defined.
        status: How the run must end.
        prints: What it must print, surrounding white space aside.
        deadline_seconds: For this run; None for the daemon's default.
    """

    code: str
    status: RunStatus = RunStatus.OK
    prints: str = ""
    deadline_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A scripted attempt at a problem: its runs, its answer, its verdict.

    Attributes:
        cells: Runs in one session, in order.
        response: The final text, as a model would write it.
        verdict: What verification must conclude about `response`.
    """

    cells: tuple[Cell, ...]
    response: str
    verdict: VerdictStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkingItem:
    """One line of a proof's marking scheme; `points` are whole and positive."""

    title: str
    points: int
    desc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem.

    Attributes:
        id: Unique among the problems of a data set.
        kind: `answer` problems have an answer to compare with, `proof`
            problems a marking scheme.
        problem: The statement, in LaTeX.
        answer: The reference answer, for `answer` problems.
        reference_solution: A complete proof, for `proof` problems.
        marking_scheme: How a proof's points are given.
        needs: Modules beyond the core dependencies that the script imports.
        script: A scripted attempt, where there is one.
    """

    id: str
    kind: Literal["answer", "proof"]
    problem: str
    answer: str | None = None
    reference_solution: str | None = None
    marking_scheme: tuple[MarkingItem, ...] = ()
    needs: tuple[str, ...] = ()
    script: Script | None = None


def bundled_problems() -> tuple[Problem, ...]:
    """Read the problems that come with the package, in their order."""
    return tuple(_read_bundled())


def _read_bundled() -> Iterator[Problem]:
    decoder = msgspec.json.Decoder(Problem)
    folder = resources.files("qedtrio.environment")
    for line in folder.joinpath(RESOURCE).read_bytes().splitlines():
        yield decoder.decode(line)
