"""Episodes: played in order, bounded, and compared with their scripts."""

from dataclasses import replace
from io import StringIO

import trio
from rich.console import Console

from qedtrio.cli.play import Outcome, play_all
from qedtrio.cli.scoreboard import choose, print_outcomes
from qedtrio.environment.problems import bundled_problems
from qedtrio.results import VerdictStatus
from tests.cli.fakes import Answer, Asked, ScriptedDaemon, serve_tcp

PLAYABLE, SKIPPED = choose(bundled_problems())


async def play(daemon: ScriptedDaemon) -> list[Outcome]:
    """Play every problem on `daemon`."""
    with trio.fail_after(10):
        async with serve_tcp(daemon) as url:
            return await play_all(url, PLAYABLE, players=4, on_end=lambda _: None)


def show(outcomes: list[Outcome]) -> str:
    """Print outcomes as on a narrow terminal without colours."""
    out = StringIO()
    print_outcomes(outcomes, SKIPPED, Console(file=out, width=80))
    return out.getvalue()


async def test_a_daemon_that_does_its_work_brings_no_surprise() -> None:
    """Every run and verdict as scripted, at most four sessions, none left."""
    daemon = ScriptedDaemon(PLAYABLE)
    outcomes = await play(daemon)

    assert [outcome.surprises for outcome in outcomes] == [[]] * len(PLAYABLE)
    assert [outcome.problem for outcome in outcomes] == PLAYABLE
    assert daemon.open_sessions == set()
    assert 1 < daemon.most_open <= 4
    assert "all ended as scripted" in show(outcomes)


async def test_another_verdict_is_a_surprise() -> None:
    """A verdict that flips is told by name, in its row and below the table."""
    first = PLAYABLE[0].id
    outcomes = await play(ScriptedDaemon(PLAYABLE, {first: VerdictStatus.TIMEOUT}))

    assert outcomes[0].surprises == ["verdict is timeout, not correct"]
    text = show(outcomes)
    assert f"{first}: verdict is timeout, not correct" in text
    assert "1 did not end as scripted" in text


async def test_another_run_is_a_surprise() -> None:
    """Status and output of every run are compared."""
    problem = PLAYABLE[0]
    assert problem.script is not None
    cell = replace(problem.script.cells[0], prints="something else")
    script = replace(problem.script, cells=(cell, *problem.script.cells[1:]))
    daemon = ScriptedDaemon([replace(problem, script=script), *PLAYABLE[1:]])
    outcomes = await play(daemon)

    (surprise,) = outcomes[0].surprises
    assert surprise.startswith(r"run 1 printed 'something else\n', not '")


async def test_a_refusal_is_a_surprise_and_the_session_is_closed() -> None:
    """An HTTP problem ends the episode, with its code, and leaks nothing."""

    class Refusing(ScriptedDaemon):
        async def __call__(self, asked: Asked) -> Answer:
            if asked.path == "/v1/verify":
                return Answer(503, b'{"code": "overloaded", "detail": "queue is full"}')
            return await super().__call__(asked)

    daemon = Refusing(PLAYABLE)
    outcomes = await play(daemon)

    said = {tuple(outcome.surprises) for outcome in outcomes}
    assert said == {("HTTP 503 overloaded: queue is full",)}
    assert daemon.open_sessions == set()
    assert "no verdicts" in show(outcomes)


async def test_nobody_there_is_a_surprise_in_every_episode() -> None:
    """A dead daemon is reported by every row, not by a traceback."""
    async with serve_tcp(ScriptedDaemon(PLAYABLE)) as url:
        pass
    with trio.fail_after(10):
        outcomes = await play_all(url, PLAYABLE, players=4, on_end=lambda _: None)

    assert all("connecting to" in outcome.surprises[0] for outcome in outcomes)


async def test_the_table_fits_eighty_columns() -> None:
    """A pipe or a narrow terminal loses no status."""
    outcomes = await play(ScriptedDaemon(PLAYABLE))

    text = show(outcomes)
    assert max(len(line) for line in text.splitlines()) <= 80
    for word in ("timed_out", "no_answer", "empty_answer", "multiples-below"):
        assert word in text
    assert "not played, needs a judge: 4" in text


def test_problems_that_lack_a_module_are_told() -> None:
    """Without the scientific libraries the rest is still played."""
    lacking = replace(PLAYABLE[0], needs=("no_such_module",))
    playable, skipped = choose([lacking, PLAYABLE[1]])

    assert playable == [PLAYABLE[1]]
    assert skipped == [(lacking, "needs no_such_module (extra `science`)")]
