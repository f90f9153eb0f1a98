"""The commands: quick help, one sentence for a bad configuration, exit codes."""

import os
import subprocess
import sys

import click
import pytest
import trio
from click.testing import CliRunner

from qedtrio.cli import COMMANDS, main
from qedtrio.cli.bench.daemon import kill_group
from qedtrio.cli.check_config import command as check_config
from qedtrio.cli.entry import ConfigurationRefused, run_async
from qedtrio.errors import ConfigError

HEAVY = ("trio", "quart", "hypercorn", "sympy", "numpy", "rich", "math_verify")


async def run_python(
    *arguments: str, seconds: float = 10, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run a fresh interpreter to its success and keep what it says."""
    with trio.fail_after(seconds):
        return await trio.run_process(
            [sys.executable, *arguments],
            capture_stdout=True,
            capture_stderr=True,
            env={**os.environ, **(env or {})},
            deliver_cancel=kill_group,
            start_new_session=True,
        )


async def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    """`qedtrio --help` answers at once."""
    program = (
        "import sys\nfrom qedtrio.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = await run_python("-c", program)

    text = done.stdout.decode()
    assert text.splitlines()[-1] == "[]"
    for name, entry in COMMANDS.items():
        assert name in text
        assert entry.summary.split()[0] in text


def test_an_unknown_command_is_refused() -> None:
    """A typing error is exit code 2, not a traceback."""
    result = CliRunner().invoke(main, ["sevre"])

    assert result.exit_code == 2
    assert "No such command" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_is_the_first_sentence_of_the_command(name: str) -> None:
    """The table for `--help` and the command's own help do not drift."""
    command = main.get_command(click.Context(main), name)

    assert command is not None
    assert (command.help or "").partition("\n\n")[0] == COMMANDS[name].summary


def test_check_config_prints_toml_with_sources() -> None:
    """Flags and variables show as the source of what they set."""
    result = CliRunner().invoke(
        check_config,
        ["--listen", "native=127.0.0.1:0"],
        env={"QEDTRIO_LIMITS__SESSIONS": "9"},
    )

    assert result.exit_code == 0
    assert "sessions = 9" in result.output
    assert "Source: QEDTRIO_LIMITS__SESSIONS." in result.output
    assert 'address = "127.0.0.1:0"' in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config", "/nonexistent.toml"], "/nonexistent.toml: No such file"),
        (["--listen", "native"], "--listen: must be NAME=ADDRESS"),
    ],
)
def test_a_refused_configuration_is_one_sentence(
    arguments: list[str], said: str
) -> None:
    """Exit code 2, stderr says which key and why, stdout stays empty."""
    result = CliRunner().invoke(check_config, arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def raise_in_nursery(*errors: BaseException) -> None:
    """Run tasks under Trio of which each raises one of `errors`."""

    async def fail(error: BaseException) -> None:  # noqa: ASYNC910, ASYNC124
        raise error  # before any checkpoint, so that no task cancels another

    async def fail_all() -> None:
        async with trio.open_nursery() as nursery:
            for error in errors:
                nursery.start_soon(fail, error)

    run_async(fail_all)


def test_a_refusal_inside_a_nursery_is_still_one_sentence() -> None:
    """The daemon may notice a bad key only while it starts."""
    with pytest.raises(ConfigurationRefused, match="listen: taken"):
        raise_in_nursery(ConfigError("listen", "taken"))


def test_an_interrupt_inside_a_nursery_ends_the_command() -> None:
    """Ctrl-C is no traceback."""
    with pytest.raises(click.Abort):
        raise_in_nursery(KeyboardInterrupt())


def test_a_sentence_for_the_user_passes_through_nurseries() -> None:
    """What a command says by click's own exception stays that."""
    with pytest.raises(click.ClickException, match="not ready"):
        raise_in_nursery(click.ClickException("not ready"))


def test_a_fault_beside_a_refusal_is_not_hidden() -> None:
    """Whoever fails with something else as well gets the whole traceback."""
    with pytest.RaisesGroup(ConfigError, OSError):
        raise_in_nursery(ConfigError("listen", "taken"), OSError())
