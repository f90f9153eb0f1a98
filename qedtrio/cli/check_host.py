"""`qedtrio check-host`: which isolation tier this host reaches, and the remedy."""

from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qedtrio.cli.entry import run_async
from qedtrio.cli.options import config_option, read_config
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.probe import HostReport, probe_host

__all__ = ["command"]


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(config_path: Path | None, as_json: bool) -> None:
    """Say what this host can isolate, and the remedy.

    Exits with 1 when the host stays below `daemon.minimum_tier`.
    """
    config, _ = read_config(config_path)
    minimum = config.daemon.minimum_tier
    report = run_async(probe_host, config.daemon.sandbox_uid, config.daemon.cgroup)
    if as_json:
        click.echo(render_json(report, minimum))
    else:
        print_report(report, minimum, Console())
    raise SystemExit(0 if is_enough(report, minimum) else 1)


def is_enough(report: HostReport, minimum: str) -> bool:
    """Tell whether the tier reached is at least `minimum`; A is the strongest."""
    return Tier(report.tier).reaches(Tier(minimum))


def render_json(report: HostReport, minimum: str) -> str:
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


def print_report(report: HostReport, minimum: str, console: Console) -> None:
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
