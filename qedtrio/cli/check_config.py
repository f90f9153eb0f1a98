"""`qedtrio check-config`: what would run, and where each value came from."""

from pathlib import Path

import click

from qedtrio.cli.options import config_option, listen_option, read_config
from qedtrio.config import render_config

__all__ = ["command"]


@click.command()
@config_option
@listen_option
def command(config_path: Path | None, listen: tuple[str, ...]) -> None:
    """Print what would run, key by key.

    The output is TOML that --config accepts. Exits with 2 and one sentence on
    stderr when the configuration is refused.
    """
    config, sources = read_config(config_path, listen)
    click.echo(render_config(config, sources), nl=False)
