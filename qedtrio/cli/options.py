"""The configuration options that several commands share."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from qedtrio.cli.entry import ConfigurationRefused
from qedtrio.config import Config, load_config
from qedtrio.config.load import Sources
from qedtrio.errors import ConfigError

__all__ = ["config_option", "listen_option", "read_config"]

Command = TypeVar("Command", bound=Callable[..., object])


def config_option(command: Command) -> Command:
    """Add `--config FILE`."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="TOML file; QEDTRIO_SECTION__KEY variables override it key by key.",
    )(command)


def listen_option(command: Command) -> Command:
    """Add `--listen NAME=ADDRESS`, which may be repeated."""
    return click.option(
        "--listen",
        multiple=True,
        metavar="NAME=ADDRESS",
        help="Replaces the configured listeners; may be repeated. ADDRESS is"
        " host:port (port 0 picks a free one), unix:/path or fd:NAME.",
    )(command)


def read_config(
    path: Path | None, listen: tuple[str, ...] = ()
) -> tuple[Config, Sources]:
    """Read the configuration from file, environment and flags.

    Raises:
        ConfigurationRefused: A key is unknown, out of range or contradictory.
    """
    try:
        return load_config(path, os.environ, listen)
    except ConfigError as error:
        raise ConfigurationRefused(str(error)) from error
