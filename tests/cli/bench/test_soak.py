"""How a soak judges answers: right, explained by a fault, or a finding."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO

import pytest
import trio
from click.testing import CliRunner
from rich.console import Console

from qedtrio.cli.bench import command
from qedtrio.cli.bench.crowd import PoolSeen, SessionsSeen, Status, WorkerSeen
from qedtrio.cli.bench.daemon import kill_group
from qedtrio.cli.bench.machine import describe_machine
from qedtrio.cli.bench.soak import episodes
from qedtrio.cli.bench.soak.acts import (
    ACTS,
    COUNT,
    LOOP,
    NUMPY,
    Act,
    RaisedError,
    Ran,
    Truncated,
    find_flaw,
)
from qedtrio.cli.bench.soak.episodes import Kind, Repertoire, play_until_done
from qedtrio.cli.bench.soak.faults import RATES, Kills, kill_one
from qedtrio.cli.bench.soak.leaks import leak_table
from qedtrio.cli.bench.soak.player import (
    FaultMetError,
    OpenSession,
    Player,
    UnexpectedAnswerError,
)
from qedtrio.cli.bench.soak.report import print_soak
from qedtrio.cli.bench.soak.suite import (
    SoakPlan,
    SoakReport,
    run_soak,
    watch_signals,
)
from qedtrio.cli.bench.soak.tally import (
    KEPT_FAILURES,
    KEPT_SAMPLES,
    Latencies,
    Reservoir,
    Tally,
)
from qedtrio.cli.http import open_connection
from tests.cli.bench.test_leaks import NOTHING_LEFT, QUIET
from tests.cli.fakes import Answer, Asked, json_answer, serve_tcp

GOOD_COUNT = json_answer({"status": "ok", "state": "kept", "stdout": "1\n"})
KILLED = json_answer({"status": "signalled", "state": "lost", "signal": 9})
LOST = json_answer({"code": "worker_lost", "detail": "it died"}, 500)


def right_result(act: Act) -> Ran:
    """Make the result that `act` must give at first."""
    return Ran(
        status=act.status,
        state="lost" if act.lost else "kept",
        stdout=act.printed(0) if act.printed else "",
        error=RaisedError(act.raised) if act.raised else None,
        exit_code=act.exit_code,
        truncated=Truncated(int(act.truncated)),
    )


@pytest.mark.parametrize("act", [*ACTS, NUMPY], ids=lambda act: act.name)
def test_a_result_must_be_the_very_one(act: Act) -> None:
    """Another status, output or state is a flaw."""
    right = right_result(act)
    assert find_flaw(act, right, 0) == ""

    for name, value in {"status": "?", "state": "?", "exit_code": 9}.items():
        fields = {slot: getattr(right, slot) for slot in Ran.__slots__}
        assert name in find_flaw(act, Ran(**(fields | {name: value})), 0)


def test_a_counter_tells_whose_interpreter_it_is() -> None:
    """A run that finds another session's state, or none, is seen."""
    third = Ran(status="ok", state="kept", stdout="3\n")

    assert find_flaw(COUNT, third, 2) == ""
    assert "stdout" in find_flaw(COUNT, third, 0)


@asynccontextmanager
async def open_player(
    answers: Sequence[Answer], kills: Kills | None = None
) -> AsyncIterator[Player]:
    """Give a client of a server that answers these in turn, the last one forever."""
    waiting = list(answers)

    async def handle(_: Asked) -> Answer:
        await trio.lowlevel.checkpoint()
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    async with (
        serve_tcp(handle) as url,
        open_connection(url) as main,
        open_connection(url) as side,
    ):
        yield Player(main, side, Tally(), kills or Kills())


COUNT_ONCE = Kind(name="count", weight=1, play=lambda player: player.run(COUNT))


async def test_an_episode_met_by_faults_is_played_until_it_is_right() -> None:
    """What a fault explains is counted by its code, and is no failure."""
    with trio.fail_after(10):
        async with open_player([LOST, LOST, GOOD_COUNT]) as player:
            await play_until_done(COUNT_ONCE, player)

    tally = player.tally
    assert (tally.faults, tally.failed) == ({"worker_lost": 2}, 0)
    assert (tally.episodes, tally.recovered) == ({"count": 1}, 1)
    assert tally.attempts == 3


async def test_faults_without_end_are_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Recovery is part of the promise."""
    monkeypatch.setattr(episodes, "MOST_ATTEMPTS", 3)
    with trio.fail_after(10):
        async with open_player([LOST]) as player:
            await play_until_done(COUNT_ONCE, player)

    assert player.tally.failed == 1
    assert "after 3 attempts" in player.tally.failures[0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (KILLED, "status is 'signalled'"),
        (json_answer({"status": "ok", "state": "kept", "stdout": "2\n"}), "stdout"),
        (json_answer({"code": "release_failed", "detail": ""}, 503), "release_failed"),
        (json_answer({"code": "internal_error"}, 500), "internal_error"),
        (Answer(body=b"?"), "not the JSON"),
        (Answer(body=[b"half"], cut=True), "/v1/run"),
    ],
    ids=["killed", "output", "unreleased", "bug", "garbage", "cut"],
)
async def test_what_no_fault_explains_is_a_failure(answer: Answer, said: str) -> None:
    """It is told in words, and not tried again."""
    with trio.fail_after(10):
        async with open_player([answer, GOOD_COUNT]) as player:
            await play_until_done(COUNT_ONCE, player)

    assert player.tally.failed == player.tally.attempts == 1
    assert said in player.tally.failures[0]


@pytest.mark.parametrize("by_daemon", [False, True])
async def test_a_kill_explains_a_run_that_was_killed(*, by_daemon: bool) -> None:
    """The soak killed a worker just now, or had the daemon do so."""
    kills = Kills(is_daemon_killing=by_daemon)
    with trio.fail_after(10):
        async with open_player([KILLED, GOOD_COUNT], kills) as player:
            if not by_daemon:
                kills.add(None)
            await play_until_done(COUNT_ONCE, player)

    assert player.tally.faults == {"worker_killed": 1}
    assert player.tally.failed == 0


@pytest.mark.parametrize(
    ("is_killed", "is_unseen", "explained"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
async def test_lost_state_is_explained_by_a_kill_that_nobody_saw(
    *, is_killed: bool, is_unseen: bool, explained: bool
) -> None:
    """Else a session that forgets is a finding."""
    session = OpenSession("s", counted=1, has_unseen_run=is_unseen)
    fresh = Ran(status="ok", state="kept", stdout="1\n")
    kills = Kills()
    if is_killed:
        kills.add("s")
    with trio.fail_after(10):
        async with open_player([GOOD_COUNT], kills) as player:
            kind = FaultMetError if explained else UnexpectedAnswerError
            with pytest.raises(kind):
                player.check(COUNT, fresh, session, 0)


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_kill_at_the_deadline_loses_the_state(*, is_killed: bool) -> None:
    """A loop that an interrupt ends keeps it otherwise."""
    kills = Kills()
    if is_killed:
        kills.add("s")
    error = RaisedError("DeadlineExceeded")
    ran = Ran(status="timed_out", state="lost", stdout="begun\n", error=error)
    with trio.fail_after(10):
        async with open_player([GOOD_COUNT], kills) as player:
            with pytest.raises(FaultMetError if is_killed else UnexpectedAnswerError):
                player.check(LOOP, ran, OpenSession("s"), 0)


async def test_a_kill_explains_its_own_session_only() -> None:
    """Another session that loses its worker is a finding."""
    await trio.lowlevel.checkpoint()
    kills = Kills()
    kills.add("mine")

    assert kills.explain("mine", trio.current_time() + 60)
    assert not kills.explain("yours", 0)
    assert not kills.explain(None, 0)


def seen(pid: int) -> Status:
    """A status with one worker."""
    pool = PoolSeen([WorkerSeen(pid, "s")])
    return Status({"science": pool}, SessionsSeen(1))


async def test_a_foreign_process_is_not_killed() -> None:
    """A process id that has passed to somebody else is left alone."""
    await trio.lowlevel.checkpoint()
    kills = Kills()
    kill_one(seen(os.getppid()), kills)

    assert kills.count == 0


async def test_a_kill_is_noted_with_its_session() -> None:
    """What comes of it can then be explained."""
    kills = Kills()
    run = partial(
        trio.run_process,
        [sys.executable, "-c", "import signal; signal.pause()"],
        check=False,
        start_new_session=True,
        deliver_cancel=kill_group,
    )
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(run)
            kill_one(seen(process.pid), kills)
            await process.wait()

    assert process.returncode == -signal.SIGKILL
    assert [kill.session_id for kill in kills.recent] == ["s"]


def test_everything_is_played_when_warming_up() -> None:
    """Each kind and each act once, numpy only where it is preloaded."""
    without, with_numpy = Repertoire(has_numpy=False), Repertoire(has_numpy=True)

    names = {kind.name for kind in without.everything()}
    assert names == {kind.name for kind in without.kinds}
    assert len(with_numpy.everything()) == len(without.everything()) + 1


def test_about_one_start_in_twenty_is_hit() -> None:
    """The rates add up to what a soak promises."""
    assert sum(RATES.values()) == pytest.approx(0.05)


def test_memory_of_a_soak_is_bounded() -> None:
    """However long it is, it keeps so many latencies and sentences."""
    kept, tally = Reservoir(), Tally()
    for number in range(KEPT_SAMPLES + 5):
        kept.add(number)
    for _ in range(KEPT_FAILURES + 5):
        tally.fail("x")

    assert (kept.seen, len(kept.samples)) == (KEPT_SAMPLES + 5, KEPT_SAMPLES)
    assert (tally.failed, len(tally.failures)) == (KEPT_FAILURES + 5, KEPT_FAILURES)


def clean_report() -> SoakReport:
    """A report with nothing to complain of."""
    report = SoakReport(machine=describe_machine(), clients=2, seconds=1.0)
    report.tally.episodes["session"] += 1
    latencies = Latencies()
    latencies.add("count", 0.002)
    report.leaks = leak_table(QUIET, QUIET, QUIET, sessions=(1, 1), left=NOTHING_LEFT)
    report.runs = latencies.measurements(1.0, 2)
    return report


def plant_leak(report: SoakReport) -> None:
    """Leave a process."""
    report.leaks = leak_table(
        QUIET, QUIET, QUIET, sessions=(1, 1), left=NOTHING_LEFT | {"processes": 1}
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (plant_leak, "LEAK"),
        (lambda report: report.tally.fail("odd [answer]"), "unexpected, odd [answer]"),
        (lambda report: report.failures.append("it died"), "failed, it died"),
        (lambda report: report.tally.episodes.clear(), "episodes: none"),
        (lambda report: setattr(report, "leaks", None), "done"),
    ],
    ids=["leak", "answer", "failure", "idle", "unread"],
)
def test_a_report_with_a_finding_is_not_clean(
    spoil: Callable[[SoakReport], None], said: str
) -> None:
    """It says so in print, too."""
    assert clean_report().is_clean
    report = clean_report()
    spoil(report)
    out = StringIO()
    print_soak(report, Console(file=out, width=100))

    assert not report.is_clean
    assert said in out.getvalue()


async def test_a_daemon_that_does_not_start_is_a_failed_soak() -> None:
    """The report says why, and nothing is left."""
    steps: list[str] = []
    plan = SoakPlan(seconds=1, serve=[sys.executable, "-c", "print('no')"])
    with trio.fail_after(20):
        report = await run_soak(plan, steps.append)

    assert not report.is_clean
    assert "did not become ready" in report.failures[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_traffic_and_a_second_one_everything(
    number: signal.Signals,
) -> None:
    """The table so far is printed still, unless it is asked for twice."""
    stop = trio.Event()
    with trio.fail_after(10), pytest.RaisesGroup(KeyboardInterrupt):
        async with watch_signals(stop):
            signal.raise_signal(number)
            await stop.wait()
            signal.raise_signal(number)
            await trio.sleep_forever()


@pytest.mark.parametrize(
    "extra",
    [
        ["--url", "http://h"],
        ["--scenario", "crowd"],
        ["--clients", "1", "--clients", "2"],
    ],
)
def test_a_soak_takes_no_options_of_a_measurement(extra: list[str]) -> None:
    """What would be ignored is refused."""
    result = CliRunner().invoke(command, ["--soak", "1", *extra])

    assert result.exit_code == 2
    assert "--soak takes no --url" in result.output
