"""The command line: one module a command."""

import click

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="qedtrio")
def main() -> None:
    """Run model-written Python and check mathematical answers for RL trainers."""
