"""The report for people; the one for programs is the same record as JSON."""

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from qedtrio.cli.bench.machine import Machine
from qedtrio.cli.bench.measure import Measurement
from qedtrio.cli.bench.memory import IdleCost
from qedtrio.cli.bench.sandbox import START_AIM_MS, Difference, SandboxCost
from qedtrio.cli.bench.shutdown import Crowd
from qedtrio.cli.bench.suite import Report

__all__ = ["describe", "number", "print_report", "report_json"]

MIB = 1024 * 1024
COLUMNS = ("at", "done", "err", "p50", "p90", "p99", "per s", "cpu", "floor")
"""Of the table, after the scenario; `at` is the number of clients."""


def report_json(report: object) -> bytes:
    """Encode everything that was measured, indented."""
    return msgspec.json.format(msgspec.json.encode(report)) + b"\n"


def print_report(report: Report, console: Console) -> None:
    """Print the machine, the table, the crowd, and all that went wrong."""
    console.print(describe(report.machine), markup=False, highlight=False)
    table = Table(
        title=f"measured on {report.target}; times in milliseconds",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("scenario", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for one in report.measurements:
        table.add_row(*row(one))
    console.print(table)
    for sentence in sentences(report):
        console.print(sentence, markup=False, highlight=False)


def describe(machine: Machine) -> str:
    """Say in a line where this was measured."""
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.kernel}, {machine.python},"
        f" load {machine.load_1m:.2f}"
    )


def row(one: Measurement) -> list[str]:
    """Make the table's row for one measurement."""
    errors = sum(one.errors.values())
    return [
        one.scenario,
        str(one.clients),
        str(one.requests),
        f"[red]{errors}[/]" if errors else "0",
        number(one.p50_ms),
        number(one.p90_ms),
        number(one.p99_ms),
        number(one.per_second),
        number(one.server_cpu_ms),
        f"x{number(one.ratio)}" if one.ratio else "-",
    ]


def number(value: float | None) -> str:
    """Print three significant digits, or a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def sentences(report: Report) -> list[str]:
    """List what the table has no place for."""
    lines = []
    if report.idle:
        lines.append(describe_idle(report.idle))
    if report.crowd:
        lines.append(describe_crowd(report.crowd))
    lines += [describe_sandbox(cost) for cost in report.sandbox]
    for one in report.measurements:
        for kind, count in one.errors.items():
            lines.append(f"errors, {one.scenario} at {one.clients}: {count} x {kind}")
    lines += [f"note, {note}" for note in report.notes]
    lines += [f"failed, {failure}" for failure in report.failures]
    return lines


def describe_idle(idle: IdleCost) -> str:
    """Say what an idle session costs."""
    if idle.mean_bytes is None or idle.max_bytes is None:
        return f"idle session: memory of {idle.unreadable} workers is unreadable"
    return (
        f"idle session: {idle.mean_bytes / MIB:.2f} MiB private memory on average,"
        f" {idle.max_bytes / MIB:.2f} at most, over {idle.sessions} sessions"
    )


def describe_crowd(crowd: Crowd) -> str:
    """Say how the crowd lived and died."""
    return (
        f"crowd: {crowd.live} of {crowd.sessions} sessions alive after"
        f" {crowd.open_seconds:.2f} s, {crowd.answered} answered within"
        f" {crowd.answer_seconds:.2f} s; after SIGTERM {crowd.processes} processes"
        f" dead in {crowd.dead_seconds:.2f} s, {crowd.survivors} survivors,"
        f" exit code {crowd.exit_code}"
    )


def describe_sandbox(cost: SandboxCost) -> str:
    """Say what the strongest tier adds."""
    aim = "reached" if cost.start.median_ms <= START_AIM_MS else "missed"
    return (
        f"sandbox, {cost.preload} preload: tier {cost.tier} against C over"
        f" {cost.rounds} rounds: start {describe_difference(cost.start)}, aim of at"
        f" most {START_AIM_MS:g} ms {aim}; warm run {describe_difference(cost.warm)}"
    )


def describe_difference(difference: Difference) -> str:
    """Say how much, and how sure that is."""
    low, high = difference.quartiles_ms
    return (
        f"{difference.median_ms:+.2f} ms (quartiles {low:+.2f} to {high:+.2f},"
        f" quickest tenth {difference.undisturbed_ms:+.2f})"
    )
