"""Which problems can be played, and how their outcomes are shown."""

import importlib.util
from collections import Counter
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qedtrio.cli.play import Outcome
from qedtrio.environment.problems import Problem
from qedtrio.results import VerdictStatus

__all__ = ["choose", "print_outcomes"]

COLOURS = {VerdictStatus.CORRECT: "green", VerdictStatus.WRONG: "red"}


def choose(
    problems: Sequence[Problem],
) -> tuple[list[Problem], list[tuple[Problem, str]]]:
    """Split the problems into those that can be played and why others cannot."""
    playable: list[Problem] = []
    skipped: list[tuple[Problem, str]] = []
    for problem in problems:
        lacking = [name for name in problem.needs if not importlib.util.find_spec(name)]
        if lacking:
            why = f"needs {', '.join(lacking)} (extra `science`)"
            skipped.append((problem, why))
        elif problem.script is None:
            skipped.append((problem, "needs a judge"))
        else:
            playable.append(problem)
    return playable, skipped


def print_outcomes(
    outcomes: Sequence[Outcome],
    skipped: Sequence[tuple[Problem, str]],
    console: Console,
) -> None:
    """Print the table, what surprised, and the summary."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("problem", no_wrap=True)
    table.add_column("runs", min_width=len("memory_exceeded"))
    table.add_column("answer", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("seconds", justify="right")
    for outcome in outcomes:
        table.add_row(*describe(outcome), style="red" if outcome.surprises else "")
    console.print(table)
    for outcome in outcomes:
        for surprise in outcome.surprises:
            console.print(f"{outcome.problem.id}: {surprise}", markup=False)
    for why, number in Counter(why for _, why in skipped).items():
        console.print(f"not played, {why}: {number}", markup=False, highlight=False)
    console.print(summarise(outcomes), highlight=False)


def describe(outcome: Outcome) -> list[str]:
    """Make the table's row for one episode."""
    verdict = outcome.verdict
    answer, status = "", "-"
    if verdict is not None:
        answer = verdict.extracted or ""
        colour = COLOURS.get(verdict.status, "yellow")
        status = f"[{colour}]{verdict.status}[/]"
    return [
        outcome.problem.id,
        " ".join(run.status for run in outcome.runs),
        escape(answer),
        status,
        f"{outcome.seconds:.2f}",
    ]


def summarise(outcomes: Sequence[Outcome]) -> str:
    """Say in one line what was concluded and whether it was as scripted."""
    counts = Counter(o.verdict.status for o in outcomes if o.verdict is not None)
    verdicts = ", ".join(f"{number} {status}" for status, number in counts.items())
    runs = sum(len(outcome.runs) for outcome in outcomes)
    tiers = "/".join(sorted({o.tier for o in outcomes if o.tier})) or "none"
    bad = sum(1 for outcome in outcomes if outcome.surprises)
    ending = f"{bad} did not end as scripted" if bad else "all ended as scripted"
    return (
        f"{len(outcomes)} episodes, {runs} runs, isolation tier {tiers}:"
        f" {verdicts or 'no verdicts'}; {ending}."
    )
