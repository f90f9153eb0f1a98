"""`qedtrio bench`: figures for a daemon, beside the floors below it.

Read `scenarios` for what is repeated, `load` for how, `floors` for what it is
compared with, `memory` and `shutdown` for many sessions, `suite` for the order,
and `soak` for the endurance test.
"""

from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console

from qedtrio.cli.bench.daemon import SERVE
from qedtrio.cli.bench.pinger import open_worker_pinger
from qedtrio.cli.bench.report import print_report, report_json
from qedtrio.cli.bench.soak.faults import injection, settings
from qedtrio.cli.bench.soak.report import print_soak
from qedtrio.cli.bench.soak.suite import SoakPlan, run_soak
from qedtrio.cli.bench.suite import NAMES, Plan, run_suite
from qedtrio.cli.entry import run_async
from qedtrio.sandbox.privileges import become_subreaper

__all__ = ["command"]

SECONDS = 3.0
CLIENTS = (1, 8, 32)
SOAK_CLIENTS = 8


@click.command()
@click.option("--url", help="Measure this daemon instead of one of our own.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.05, 600),
    default=SECONDS,
    show_default=True,
    help="For each scenario at each number of clients.",
)
@click.option(
    "--clients",
    type=click.IntRange(1, 1024),
    multiple=True,
    help="Clients at a time; may be repeated. Default: 1, 8 and 32; of a soak, 8.",
)
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice(NAMES),
    multiple=True,
    help="Measure only this; may be repeated.",
)
@click.option(
    "--sessions",
    type=click.IntRange(1, 10_000),
    default=300,
    show_default=True,
    help="Sessions at once in the scenario `crowd`.",
)
@click.option(
    "--soak",
    "soak_minutes",
    type=click.FloatRange(0.01, 10_080),
    metavar="MINUTES",
    help="Instead of measuring, put a daemon of our own under mixed traffic with"
    " faults for so long, and print what leaked.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write all figures and the machine as JSON.",
)
def command(
    url: str | None,
    seconds: float,
    clients: tuple[int, ...],
    scenarios: tuple[str, ...],
    sessions: int,
    soak_minutes: float | None,
    json_path: Path | None,
) -> None:
    """Measure a daemon and the floors below it.

    Starts a daemon as a process of its own unless --url names one. Exits with
    1 when anything failed, however good the figures are.
    """
    progress = Console(stderr=True)

    def on_step(step: str) -> None:
        progress.print(step, style="dim", markup=False)

    if soak_minutes is not None:
        soak_plan = plan_soak(soak_minutes, url, clients, scenarios)
        become_subreaper()  # no orphan of the daemon shall escape the count
        soaked = run_async(run_soak, soak_plan, on_step)
        print_soak(soaked, Console())
        finish(soaked, json_path, is_clean=soaked.is_clean)
    plan = Plan(
        url=url,
        seconds=seconds,
        clients=clients or CLIENTS,
        scenarios=scenarios or NAMES,
        sessions=sessions,
        open_pinger=open_worker_pinger,
    )
    report = run_async(run_suite, plan, on_step)
    print_report(report, Console())
    finish(report, json_path, is_clean=report.is_clean)


def plan_soak(
    minutes: float,
    url: str | None,
    clients: tuple[int, ...],
    scenarios: tuple[str, ...],
) -> SoakPlan:
    """Make the plan of a soak; refuse what only measurements take."""
    if url is not None or scenarios or len(clients) > 1:
        raise click.UsageError(
            "--soak takes no --url and no --scenario, and one number of --clients"
        )
    return SoakPlan(
        seconds=60 * minutes,
        clients=clients[0] if clients else SOAK_CLIENTS,
        serve=[*SERVE, *injection()],
        variables=settings(),
    )


def finish(report: object, json_path: Path | None, *, is_clean: bool) -> NoReturn:
    """Write the report for programs, and end with what it comes to."""
    if json_path is not None:
        json_path.write_bytes(report_json(report))
    raise SystemExit(0 if is_clean else 1)
