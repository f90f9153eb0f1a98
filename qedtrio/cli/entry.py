"""From a command to Trio, and back to an exit code."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import click
import trio

from qedtrio.errors import ConfigError, ReleaseFailedError

__all__ = ["ConfigurationRefused", "run_async"]

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


_TOLD = (ConfigError, ReleaseFailedError, click.ClickException)
"""Told in one sentence, without a traceback."""


class ConfigurationRefused(click.ClickException):
    """Ends the command with one sentence on stderr and exit code 2."""

    exit_code = 2


def run_async(
    function: Callable[[*Arguments], Awaitable[Result]], *arguments: *Arguments
) -> Result:
    """Run `function` under Trio and translate how commands usually end.

    Nurseries wrap what is raised inside them in groups. A group of nothing but
    interrupts, or of nothing but refusals, ends the command like a bare one;
    any other goes on as it is, since half of it must not be hidden.

    Raises:
        click.ClickException: The command ends with a sentence on stderr, such
            as `ConfigurationRefused`.
        click.Abort: The user pressed Ctrl-C.
    """
    try:
        return trio.run(function, *arguments)
    except ConfigError as error:
        raise ConfigurationRefused(str(error)) from error
    except BaseExceptionGroup as group:
        if group.split(KeyboardInterrupt)[1] is None:
            raise click.Abort from group
        refusals, others = group.split(_TOLD)
        if refusals is None or others is not None:
            raise
        first = first_leaf(refusals)
        if isinstance(first, click.ClickException):
            raise first from group
        if isinstance(first, ReleaseFailedError):
            raise click.ClickException(str(first)) from group
        raise ConfigurationRefused(str(first)) from group


def first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Find the first error that is not itself a group."""
    first = group.exceptions[0]
    return first_leaf(first) if isinstance(first, BaseExceptionGroup) else first
