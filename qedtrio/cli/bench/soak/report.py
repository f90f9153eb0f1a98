"""The report of a soak, for people; the same record as JSON is for programs."""

from collections import Counter

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from qedtrio.cli.bench.report import describe, number
from qedtrio.cli.bench.soak.leaks import LeakTable, Row
from qedtrio.cli.bench.soak.suite import SoakReport

__all__ = ["print_soak"]

MIB = 1024 * 1024


def print_soak(report: SoakReport, console: Console) -> None:
    """Print what was played, how fast, what leaked, and all that went wrong."""
    console.print(describe(report.machine), markup=False, highlight=False)
    console.print(latency_table(report))
    if report.leaks:
        console.print(table_of_leaks(report.leaks))
    for sentence in sentences(report):
        console.print(sentence, markup=False, highlight=False)


def plain_table(title: str, first: str, *columns: str) -> Table:
    """Make an empty table whose columns but the first are numbers."""
    table = Table(title=title, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def latency_table(report: SoakReport) -> Table:
    """Show the latencies of the runs, by what was run."""
    table = plain_table("runs, times in milliseconds", "run", "done", "p50", "p99")
    for one in report.runs:
        p50, p99 = number(one.p50_ms), number(one.p99_ms)
        table.add_row(one.scenario, str(one.requests), p50, p99)
    return table


def table_of_leaks(leaks: LeakTable) -> Table:
    """Show the leak table."""
    columns = ("before", "middle", "after", "growth", "allowed", "verdict")
    table = plain_table("leaks; memory in MiB", "of", *columns)
    for row in leaks.rows:
        cells = (row.before, row.middle, row.after, row.growth, row.allowed)
        verdict = "[red]LEAK[/]" if row.is_leak else "ok"
        if row.growth is None:
            verdict = "unreadable"
        table.add_row(row.name, *(amount(row, cell) for cell in cells), verdict)
    for name, count in leaks.left.items():
        verdict = "[red]LEAK[/]" if count else "ok"
        table.add_row(f"left_{name}", "", "", str(count), str(count), "0", verdict)
    return table


def amount(row: Row, value: int | None) -> str:
    """Print a count, or memory."""
    if value is None:
        return "-"
    return f"{value / MIB:.1f}" if row.name.endswith("_memory") else str(value)


def sentences(report: SoakReport) -> list[str]:
    """List what the tables have no place for."""
    tally = report.tally
    lines = [
        f"{tally.line(report.seconds)}, {report.kills} workers killed by the soak",
        f"episodes: {counted(tally.episodes)}",
        f"runs: {counted(tally.runs)}",
        f"verdicts: {counted(tally.verdicts)}",
        f"faults met: {counted(tally.faults)}",
        f"episodes completed after a fault: {tally.recovered}",
        f"sessions: {tally.sessions}; the daemon ended with {report.exit_code}",
    ]
    if report.is_cut_short:
        lines.append("cut short by a signal")
    lines += [f"unexpected, {sentence}" for sentence in tally.failures]
    lines += [f"failed, {failure}" for failure in report.failures]
    return lines


def counted(counts: Counter[str]) -> str:
    """List counts, the most frequent first."""
    return (
        ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"
    )
