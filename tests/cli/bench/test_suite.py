"""The suite: its order, its notes, its failures, and both reports."""

import json
import sys
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from io import StringIO

import pytest
import trio
from rich.console import Console

from qedtrio.cli.bench.floors import Pinger
from qedtrio.cli.bench.machine import describe_machine
from qedtrio.cli.bench.measure import measurement
from qedtrio.cli.bench.memory import IdleCost
from qedtrio.cli.bench.report import print_report, report_json
from qedtrio.cli.bench.shutdown import Crowd
from qedtrio.cli.bench.suite import CROWD, NAMES, Plan, Report, run_suite
from tests.cli.bench.test_load import GoodDaemon
from tests.cli.fakes import serve_tcp

CROWD_OF_TWO = Crowd(
    sessions=2,
    live=2,
    answered=2,
    open_seconds=0.1,
    answer_seconds=0.1,
    processes=9,
    dead_seconds=0.2,
    survivors=0,
    exit_code=0,
)


def plan(**changes: object) -> Plan:
    """A short plan."""
    short = Plan(
        url=None, seconds=0.05, clients=(1, 2), scenarios=("warm_run",), sessions=2
    )
    return replace(short, **changes)  # type: ignore[arg-type]  # fields by name


def ignore(_step: str) -> None:
    """Hear of progress and do nothing."""


@pytest.mark.slow
async def test_a_remote_daemon_is_measured_without_our_floors() -> None:
    """What needs a process of our own is left out, and the report says so."""
    steps: list[str] = []
    with trio.fail_after(10):
        async with serve_tcp(GoodDaemon()) as url:
            report = await run_suite(plan(url=url, scenarios=NAMES), steps.append)

    assert [(m.scenario, m.clients) for m in report.measurements][:2] == [
        ("warm_run", 1),
        ("warm_run", 2),
    ]
    assert len(report.measurements) == len(steps) == 10
    assert {note.partition(":")[0] for note in report.notes} >= {"echo", CROWD}
    assert report.is_clean


async def test_a_dead_daemon_is_a_failed_report() -> None:
    """Errors make the command fail, whatever the figures are."""
    async with serve_tcp(GoodDaemon()) as url:
        pass
    with trio.fail_after(10):
        report = await run_suite(plan(url=url), ignore)

    assert not report.is_clean
    assert sum(report.measurements[0].errors.values()) == 1


class InstantPinger:
    """A worker that answers at once."""

    async def ping(self) -> None:
        """Answer."""
        await trio.lowlevel.checkpoint()


def open_instant() -> AbstractAsyncContextManager[Pinger]:
    """Give the instant worker."""
    return nullcontext(InstantPinger())


@pytest.mark.slow
async def test_own_daemon_is_measured_beside_its_floors() -> None:
    """Floors first, then the daemon's process, echo before the scenarios."""
    serve = (sys.executable, "-m", "tests.cli.bench.daemon_of_fakes")
    with trio.fail_after(30):
        report = await run_suite(
            plan(
                serve=serve,
                open_pinger=open_instant,
                scenarios=("warm_run", "open_run_close"),
            ),
            ignore,
        )

    assert report.failures == []
    assert [m.scenario for m in report.measurements] == (
        ["fork", "worker_round_trip"]
        + 2 * ["echo"]
        + 2 * ["warm_run"]
        + 2 * ["open_run_close"]
    )
    assert all(m.ratio for m in report.measurements if m.floor)
    assert all(m.server_cpu_ms is not None for m in report.measurements[2:])
    assert report.is_clean


@pytest.mark.parametrize(
    "changes",
    [
        {"crowd": replace(CROWD_OF_TWO, survivors=1)},
        {"crowd": replace(CROWD_OF_TWO, live=1)},
        {"crowd": replace(CROWD_OF_TWO, answered=1)},
        {"crowd": replace(CROWD_OF_TWO, exit_code=-9)},
        {"failures": ["x"]},
        {"measurements": [measurement("x", [], seconds=1)]},
        {"measurements": [measurement("x", [1], seconds=1, errors={"e": 1})]},
    ],
)
def test_anything_lost_makes_the_report_unclean(changes: dict[str, object]) -> None:
    """Survivors, silent sessions, errors and failures all count."""
    report = Report(machine=describe_machine(), target="x", crowd=CROWD_OF_TWO)
    assert report.is_clean
    for name, value in changes.items():
        setattr(report, name, value)

    assert not report.is_clean


def full_report() -> Report:
    """A report with something of everything."""
    return Report(
        machine=describe_machine(),
        target="own daemon",
        measurements=[
            measurement("echo", [0.001, 0.002], seconds=1),
            measurement("warm_run", [], seconds=1, clients=8, errors={"HTTP 503": 4}),
        ],
        idle=IdleCost(sessions=2, mean_bytes=3e6, max_bytes=4_000_000, unreadable=0),
        crowd=CROWD_OF_TWO,
        notes=["fork: left out"],
        failures=["crowd: [odd]"],
    )


def test_the_printed_report_hides_nothing() -> None:
    """Errors, notes and failures stand below the table, in words."""
    out = StringIO()
    print_report(full_report(), Console(file=out, width=100))

    text = out.getvalue()
    assert "errors, warm_run at 8: 4 x HTTP 503" in text
    assert "note, fork: left out" in text
    assert "failed, crowd: [odd]" in text
    assert "9 processes dead in 0.20 s, 0 survivors" in " ".join(text.split())
    assert "2.86 MiB" in text


def test_the_report_for_programs_has_everything() -> None:
    """The JSON holds the figures, the machine and the versions."""
    document = json.loads(report_json(full_report()))

    assert document["machine"]["packages"]["trio"]
    assert document["machine"]["cores"] >= 1
    assert document["measurements"][0]["p90_ms"] == 2.0
    assert document["measurements"][1]["errors"] == {"HTTP 503": 4}
    assert document["crowd"]["dead_seconds"] == 0.2
    assert document["idle"]["mean_bytes"] == 3e6
