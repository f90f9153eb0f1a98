"""The command line: one module a command, imported when it is called.

`qedtrio --help` therefore loads neither Trio nor Quart nor SymPy.
"""

from importlib import import_module
from typing import NamedTuple

import click

import qedtrio

__all__ = ["COMMANDS", "main"]


class Entry(NamedTuple):
    """Where a command lives and what `qedtrio --help` says about it."""

    module: str
    summary: str


COMMANDS = {
    "demo": Entry("demo", "Play the bundled problems on a daemon in this process."),
    "serve": Entry("serve", "Run the daemon until SIGTERM or SIGINT."),
    "bench": Entry("bench", "Measure a daemon and the floors below it."),
    "check-config": Entry("check_config", "Print what would run, key by key."),
    "check-host": Entry(
        "check_host", "Say what this host can isolate, and the remedy."
    ),
}
"""Name → module below `qedtrio.cli`, which holds the command as `command`."""


class LazyGroup(click.Group):
    """Imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name every command, in the order of a newcomer's day."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of `cmd_name`; None where there is no such command."""
        if (entry := COMMANDS.get(cmd_name)) is None:
            return None
        module = import_module(f"qedtrio.cli.{entry.module}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, e.summary) for name, e in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(qedtrio.__version__)
def main() -> None:
    """Run model-written Python and check mathematical answers for RL trainers."""
