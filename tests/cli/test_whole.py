"""The commands as processes, on the real daemon."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from qedtrio.cli.bench.daemon import kill_group, wait_ready
from qedtrio.cli.calls import RefusedError, ask
from qedtrio.cli.http import open_connection
from tests.cli.test_commands import run_python

pytestmark = pytest.mark.slow

QUICK = {"QEDTRIO_POOLS__SCIENCE__PRELOAD": "", "QEDTRIO_VERIFY__WORKERS": "1"}
"""A daemon that starts at once."""


@asynccontextmanager
async def open_serve(*arguments: str) -> AsyncIterator[trio.Process]:
    """Run `qedtrio serve` with its output in pipes for the length of the block."""
    run = partial(
        trio.run_process,
        [sys.executable, "-m", "qedtrio", "serve", *arguments],
        stdout=subprocess.PIPE,
        check=False,
        env={**os.environ, **QUICK},
        start_new_session=True,
        deliver_cancel=kill_group,
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        yield process
        nursery.cancel_scope.cancel()


async def test_serve_announces_every_listener(tmp_path: Path) -> None:
    """Each has its line on stdout, in the order of the flags, and nothing follows."""
    unix = f"unix:{tmp_path}/api.sock"
    flags = ("--listen", "native=127.0.0.1:0", "--listen", f"native={unix}")
    with trio.fail_after(60):
        async with open_serve(*flags) as process:
            assert process.stdout is not None
            said = b""
            while said.count(b"\n") < 2:
                said += await process.stdout.receive_some()
            async with open_connection(unix) as connection:
                with pytest.raises(RefusedError, match="HTTP 404 session_not_found"):
                    await ask(connection, "GET", "/v1/sessions/none")
            process.terminate()
            said += b"".join([chunk async for chunk in process.stdout])
            await process.wait()

    first, second = said.decode().splitlines()
    assert first.startswith("ready native http://127.0.0.1:")
    assert second == f"ready native {unix}"
    assert process.returncode == 0
    assert not (tmp_path / "api.sock").exists()


async def test_the_readme_request_gets_the_readme_reply() -> None:
    """The example is what a newcomer will see, timings aside."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    request = re.search(r"curl .*--json '(.*)'$", readme, re.MULTILINE)
    shown = re.search(r"^```json\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert request is not None
    assert shown is not None
    with trio.fail_after(60):
        async with open_serve("--listen", "native=127.0.0.1:0") as process:
            async with open_connection(await wait_ready(process)) as connection:
                reply = await ask(connection, "POST", "/v1/verify", request[1].encode())
            process.terminate()
            await process.wait()

    timings = dict.fromkeys(("wall_seconds", "queue_seconds"), 0)
    assert json.loads(reply.body) | timings == json.loads(shown[1]) | timings


async def test_demo_plays_everything_as_scripted() -> None:
    """Without a terminal, on embedded defaults; exit code 0."""
    done = await run_python("-m", "qedtrio", "demo", seconds=60)

    text = done.stdout.decode()
    assert "all ended as scripted" in text
    assert done.stderr == b""


async def test_bench_measures_a_daemon_of_its_own(tmp_path: Path) -> None:
    """A short run has figures, floors, ratios and no errors."""
    path = tmp_path / "bench.json"
    names = ("warm_run", "open_run_close", "verify_single", "idle_session", "crowd")
    arguments = [f"--scenario={name}" for name in names]
    arguments += ["--seconds=0.1", "--clients=2", "--sessions=4", f"--json={path}"]
    await run_python("-m", "qedtrio", "bench", *arguments, seconds=60, env=QUICK)

    report = json.loads(path.read_text())
    measured = {one["scenario"]: one for one in report["measurements"]}
    assert set(measured) == {"fork", "worker_round_trip", "echo", *names[:3]}
    assert measured["warm_run"]["ratio"] > 0
    assert measured["warm_run"]["server_cpu_ms"] >= 0
    assert report["idle"]["mean_bytes"] > 0
    assert report["crowd"]["live"] == report["crowd"]["answered"] == 4
    assert (report["notes"], report["failures"]) == ([], [])
