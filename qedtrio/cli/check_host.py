"""`qedtrio check-host`: which isolation tier this host reaches, and the remedy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qedtrio.cli.entry import run_async
from qedtrio.cli.options import config_option, read_config
from qedtrio.workers.probe import probe_host

__all__ = ["command"]


class Finding(Protocol):
    """One facility that was probed."""

    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def detail(self) -> str: ...
    @property
    def remedy(self) -> str: ...


class Report(Protocol):
    """What the probe concluded."""

    @property
    def tier(self) -> str: ...
    @property
    def findings(self) -> Sequence[Finding]: ...


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(config_path: Path | None, as_json: bool) -> None:
    """Say what this host can isolate, and the remedy.

    Exits with 1 when the host stays below `daemon.minimum_tier`.
    """
    config, _ = read_config(config_path)
    minimum = config.daemon.minimum_tier
    report: Report = run_async(probe_host)
    if as_json:
        click.echo(render_json(report, minimum))
    else:
        print_report(report, minimum, Console())
    raise SystemExit(0 if is_enough(report, minimum) else 1)


def is_enough(report: Report, minimum: str) -> bool:
    """Tell whether the tier reached is at least `minimum`; A is the strongest."""
    return report.tier <= minimum


def render_json(report: Report, minimum: str) -> str:
    """Encode the report with the configured minimum, indented for people."""
    document = {
        "tier": report.tier,
        "minimum_tier": minimum,
        "enough": is_enough(report, minimum),
        "findings": [
            {"name": f.name, "ok": f.ok, "detail": f.detail, "remedy": f.remedy}
            for f in report.findings
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def print_report(report: Report, minimum: str, console: Console) -> None:
    """Print the findings, then the conclusion with every open remedy."""
    table = Table("", "facility", "found", title=f"isolation tier {report.tier}")
    for finding in report.findings:
        mark = "[green]ok[/]" if finding.ok else "[red]no[/]"
        table.add_row(mark, escape(finding.name), escape(finding.detail))
    console.print(table)
    for finding in report.findings:
        if not finding.ok and finding.remedy:
            console.print(f"{finding.name}: {finding.remedy}", markup=False)
    if not is_enough(report, minimum):
        console.print(
            f"This host reaches tier {report.tier};"
            f" daemon.minimum_tier asks for {minimum}.",
        )
