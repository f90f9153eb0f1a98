"""`qedtrio demo`: real episodes on a daemon in this process, no set-up needed."""

from collections.abc import Sequence

import click
import trio
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from qedtrio.cli.entry import run_async
from qedtrio.cli.logs import configure_logging
from qedtrio.cli.play import Outcome, play_all
from qedtrio.cli.scoreboard import choose, print_outcomes
from qedtrio.config import Config, ListenConfig, LogConfig
from qedtrio.daemon import run_daemon
from qedtrio.environment.problems import Problem, bundled_problems

__all__ = ["command"]

PLAYERS = 4
START_SECONDS = 60.0


@click.command()
def command() -> None:
    """Play the bundled problems on a daemon in this process.

    Starts the daemon on embedded defaults and a free loopback port, plays each
    problem through HTTP (open a session, run code, verify, close) and exits
    with 0 when every episode ended as scripted. Some are scripted to go wrong.
    """
    configure_logging(LogConfig(level="warning"))
    raise SystemExit(run_async(demonstrate, Console()))


async def demonstrate(console: Console) -> int:
    """Start a daemon, play every problem on it, and end it again.

    Returns:
        The exit code: 0 when every episode ended as scripted, else 1.
    """
    playable, skipped = choose(bundled_problems())
    config = Config(listen=(ListenConfig(address="127.0.0.1:0"),))
    async with trio.open_nursery() as nursery:
        with console.status("starting the daemon"), trio.fail_after(START_SECONDS):
            urls = dict(await nursery.start(run_daemon, config))
        outcomes = await play_visibly(urls["native"], playable, console)
        nursery.cancel_scope.cancel()
    print_outcomes(outcomes, skipped, console)
    return 1 if any(outcome.surprises for outcome in outcomes) else 0


async def play_visibly(
    url: str, problems: Sequence[Problem], console: Console
) -> list[Outcome]:
    """Play with a progress bar; where there is no terminal, a line instead."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    title = f"playing {len(problems)} problems on {url}"
    if not console.is_terminal:
        console.print(title, markup=False, highlight=False)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task(escape(title), total=len(problems))
        return await play_all(
            url, problems, players=PLAYERS, on_end=lambda _: progress.advance(bar)
        )
