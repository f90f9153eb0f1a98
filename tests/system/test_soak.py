"""A short soak of the real daemon, as CI runs it."""

import json
import os
import sys
from pathlib import Path

import pytest
import trio

from qedtrio.cli.bench.daemon import kill_group
from tests.system.conftest import LIGHT

pytestmark = pytest.mark.slow

MEMORY = {"daemon_memory", "pool_memory"}


async def test_a_short_soak_leaks_nothing(tmp_path: Path) -> None:
    """Every answer is right or explained, and the leak table is all zeros."""
    path = tmp_path / "soak.json"
    arguments = ["bench", "--soak", "0.05", "--clients", "4", "--json", str(path)]
    with trio.fail_after(120):
        done = await trio.run_process(
            [sys.executable, "-m", "qedtrio", *arguments],
            capture_stdout=True,
            check=False,
            env={**os.environ, **LIGHT},
            start_new_session=True,
            deliver_cancel=kill_group,
        )

    report = json.loads(path.read_bytes())
    assert report["tally"]["failures"] == report["failures"] == []
    growth = {row["name"]: row["growth"] for row in report["leaks"]["rows"]}
    assert {growth[name] for name in growth.keys() - MEMORY} == {0}
    assert set(report["leaks"]["left"].values()) == {0}
    assert report["exit_code"] == 0
    assert done.returncode == 0, done.stdout.decode()
    assert set(report["tally"]["episodes"]) >= {"session", "vanish", "close_busy"}
