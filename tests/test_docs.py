"""The documents say what the code does."""

import json
import re
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
import trio

from qedtrio.cli import COMMANDS
from qedtrio.cli.reference import PAGES, SECTIONS, write_pages
from qedtrio.config import Config
from qedtrio.results import Verdict, VerdictStatus

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def label(path: Path) -> str:
    """The page as the test's id."""
    return str(path.relative_to(ROOT))


def shell_lines(text: str) -> list[str]:
    """Every line in a fenced block of shell commands."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_current(name: str) -> None:
    """Made anew it reads the same; `python -m qedtrio.cli.reference` mends it."""
    assert (ROOT / "docs/reference" / name).read_text() == PAGES[name]()


def test_every_section_is_documented() -> None:
    """A new section of the configuration needs its place on the page."""
    documented = {name.partition(".")[0] for name in SECTIONS}

    assert documented == {item.name for item in fields(Config)}


def test_every_page_is_written(tmp_path: Path) -> None:
    """The command of the contributing page writes all of them."""
    write_pages(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == set(PAGES)


async def test_ci_runs_the_test_command_of_the_readme() -> None:
    """There is one such command, and `.ci/run` takes it from there."""
    with trio.fail_after(10):
        done = await trio.run_process(
            ["bash", str(ROOT / ".ci/run"), "--test-command"], capture_stdout=True
        )

    (command,) = done.stdout.decode().splitlines()
    assert command in shell_lines(README)


async def test_the_readme_commands_are_valid_shell() -> None:
    """Each line parses on its own."""
    for line in shell_lines(README):
        with trio.fail_after(10):
            await trio.run_process(["bash", "-n", "-c", line])


def test_the_readme_installs_extras_that_exist() -> None:
    """A renamed extra would install nothing, with a warning only."""
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
            "optional-dependencies"
        ]
    )
    named = re.findall(r"'\.\[([a-z,]+)\]'", README)

    assert len(named) == 2
    assert {extra for names in named for extra in names.split(",")} <= extras


def test_the_documents_call_commands_that_exist() -> None:
    """Every `qedtrio X` in a shell block is a command."""
    lines = [line for path in DOCS for line in shell_lines(path.read_text())]
    called = {name for line in lines for name in re.findall(r"qedtrio ([a-z-]+)", line)}

    assert called
    assert called <= set(COMMANDS)


def test_the_readme_reply_is_a_verdict() -> None:
    """The example has just the fields of a verdict, and its own logic."""
    block = re.search(r"^```json\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert block is not None
    reply = json.loads(block[1])

    assert list(reply) == [item.name for item in fields(Verdict)]
    assert reply["reward"] == VerdictStatus(reply["status"]).reward


@pytest.mark.parametrize("path", DOCS, ids=label)
def test_bodies_in_examples_are_json(path: Path) -> None:
    """What a reader pastes after `--json` is a JSON object."""
    for line in shell_lines(path.read_text()):
        for body in re.findall(r"--json '(.*)'", line):
            assert isinstance(json.loads(body), dict)


@pytest.mark.parametrize("path", DOCS, ids=label)
def test_links_lead_somewhere(path: Path) -> None:
    """A relative link names a file that is there."""
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_readme_limits_are_the_defaults() -> None:
    """The short table quotes keys and defaults that hold."""
    config = Config()
    sizes = {"GiB": 2**30, "MiB": 2**20, "": 1}
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| (\d+) ?(\w*) \|", README, re.MULTILINE)

    assert len(rows) >= 5
    for section, key, number, unit in rows:
        value = getattr(getattr(config, section), key)
        assert value == int(number) * sizes[unit], key


def test_ci_parses() -> None:
    """The script is valid bash and may be executed."""
    path = ROOT / ".ci/run"

    assert path.stat().st_mode & 0o111
    subprocess.check_call(["bash", "-n", str(path)])
