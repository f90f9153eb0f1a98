"""Plays scripted attempts at problems on a daemon, through its HTTP API."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from qedtrio.cli.calls import RefusedError, ask, open_session
from qedtrio.cli.http import Connection, TransportError, open_connection
from qedtrio.environment.problems import Cell, Problem
from qedtrio.results import RunResult, Verdict

__all__ = ["Outcome", "play_all"]


@dataclass(slots=True)
class Outcome:
    """How one episode went.

    Attributes:
        tier: Isolation tier of its session; empty if none was opened.
        seconds: From opening the session to its confirmed end.
        surprises: Whatever was not as scripted, one sentence each.
    """

    problem: Problem
    tier: str = ""
    runs: list[RunResult] = field(default_factory=list)
    verdict: Verdict | None = None
    seconds: float = 0.0
    surprises: list[str] = field(default_factory=list)


async def play_all(
    url: str,
    problems: Sequence[Problem],
    *,
    players: int,
    on_end: Callable[[Outcome], None],
) -> list[Outcome]:
    """Play every scripted problem, `players` at a time, each on a connection.

    Args:
        url: Of the native API.
        problems: Those with a script.
        players: Episodes at a time.
        on_end: Called after each episode.

    Returns:
        The outcomes in the order of `problems`; failures are surprises in them.
    """
    outcomes = [Outcome(problem) for problem in problems]
    waiting = iter(outcomes)

    async def play_some() -> None:
        for outcome in waiting:
            await play(url, outcome)
            on_end(outcome)

    async with trio.open_nursery() as nursery:
        for _ in range(players):
            nursery.start_soon(play_some)
    return outcomes


async def play(url: str, outcome: Outcome) -> None:
    """Play one episode; what goes wrong becomes a surprise in `outcome`."""
    started = time.perf_counter()
    try:
        async with (
            open_connection(url) as connection,
            open_session(connection) as opened,
        ):
            outcome.tier = opened.tier
            await follow_script(connection, opened.session_id, outcome)
    except (TransportError, RefusedError) as error:
        outcome.surprises.append(str(error))
    outcome.seconds = time.perf_counter() - started


async def follow_script(
    connection: Connection, session_id: str, outcome: Outcome
) -> None:
    """Run the cells in order, then have the response verified."""
    problem = outcome.problem
    assert problem.script is not None
    for cell in problem.script.cells:
        body: dict[str, object] = {"code": cell.code}
        if cell.deadline_seconds is not None:
            body["deadline_seconds"] = cell.deadline_seconds
        path = f"/v1/sessions/{session_id}/run"
        reply = await ask(connection, "POST", path, body)
        outcome.runs.append(reply.json(RunResult))
        outcome.surprises += differences(len(outcome.runs), outcome.runs[-1], cell)

    item = {"gold": problem.answer, "prediction": problem.script.response}
    reply = await ask(connection, "POST", "/v1/verify", item)
    outcome.verdict = reply.json(Verdict)
    if outcome.verdict.status is not problem.script.verdict:
        outcome.surprises.append(
            f"verdict is {outcome.verdict.status}, not {problem.script.verdict}"
        )


def differences(number: int, run: RunResult, cell: Cell) -> list[str]:
    """Say how a run differs from its script."""
    found = []
    if run.status is not cell.status:
        why = f" ({run.error.type}: {run.error.message})" if run.error else ""
        found.append(f"run {number} is {run.status}, not {cell.status}{why}")
    if run.stdout.strip() != cell.prints:
        found.append(f"run {number} printed {run.stdout!r}, not {cell.prints!r}")
    return found
