"""`qedtrio check-host`: the tier, the findings, the remedy, the exit code."""

import json
from dataclasses import dataclass

import pytest
import trio
from click.testing import CliRunner

from qedtrio.cli.check_host import command


@dataclass(frozen=True)
class Found:
    """One facility."""

    name: str
    ok: bool
    detail: str = "as probed"
    remedy: str = ""


@dataclass(frozen=True)
class HostFound:
    """What a probe concluded."""

    tier: str
    findings: tuple[Found, ...] = (
        Found("landlock", ok=True),
        Found("[namespaces]", ok=False, remedy="set kernel.unprivileged_x = 1"),
    )


@pytest.fixture(params=["A", "B", "C"])
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A host of each tier."""

    async def probe(*_: object) -> HostFound:
        await trio.lowlevel.checkpoint()
        return HostFound(request.param)

    monkeypatch.setattr("qedtrio.cli.check_host.probe_host", probe)
    assert isinstance(request.param, str)
    return request.param


@pytest.mark.parametrize("minimum", ["A", "B", "C"])
def test_below_the_minimum_is_exit_code_1(tier: str, minimum: str) -> None:
    """A is the strongest tier; the sentence names both."""
    env = {"QEDTRIO_DAEMON__MINIMUM_TIER": minimum}
    result = CliRunner().invoke(command, [], env=env)

    short = "ABC".index(tier) > "ABC".index(minimum)
    assert result.exit_code == (1 if short else 0)
    said = f"reaches tier {tier}; daemon.minimum_tier asks for {minimum}"
    assert (said in result.output) is short


def test_every_lacking_facility_has_its_remedy(tier: str) -> None:
    """What is in order needs none; brackets are not taken for styles."""
    output = CliRunner().invoke(command).output

    assert f"tier {tier}" in output
    assert "[namespaces]: set kernel.unprivileged_x = 1" in output
    assert "landlock:" not in output


def test_json_says_the_same(tier: str) -> None:
    """Programs read the tier, whether it is enough, and every finding."""
    result = CliRunner().invoke(
        command, ["--json"], env={"QEDTRIO_DAEMON__MINIMUM_TIER": "B"}
    )

    document = json.loads(result.output)
    assert (document["tier"], document["minimum_tier"]) == (tier, "B")
    assert document["enough"] is (tier != "C") is (result.exit_code == 0)
    assert document["findings"][1]["remedy"] == "set kernel.unprivileged_x = 1"
