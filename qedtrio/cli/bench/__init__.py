"""`qedtrio bench`: figures for a daemon, beside the floors below it.

Read `scenarios` for what is repeated, `load` for how, `floors` for what it is
compared with, `memory` and `shutdown` for many sessions, `suite` for the order.
"""

from pathlib import Path

import click
from rich.console import Console

from qedtrio.cli.bench.pinger import open_worker_pinger
from qedtrio.cli.bench.report import print_report, report_json
from qedtrio.cli.bench.suite import NAMES, Plan, run_suite
from qedtrio.cli.entry import run_async

__all__ = ["command"]

SECONDS = 3.0


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
    default=(1, 8, 32),
    show_default=True,
    help="Clients at a time; may be repeated.",
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
    json_path: Path | None,
) -> None:
    """Measure a daemon and the floors below it.

    Starts a daemon as a process of its own unless --url names one. Exits with
    1 when anything failed, however good the figures are.
    """
    plan = Plan(
        url=url,
        seconds=seconds,
        clients=clients,
        scenarios=scenarios or NAMES,
        sessions=sessions,
        open_pinger=open_worker_pinger,
    )
    progress = Console(stderr=True)
    report = run_async(
        run_suite, plan, lambda step: progress.print(step, style="dim", markup=False)
    )
    print_report(report, Console())
    if json_path is not None:
        json_path.write_bytes(report_json(report))
    raise SystemExit(0 if report.is_clean else 1)
