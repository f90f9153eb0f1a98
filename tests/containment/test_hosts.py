"""The tier that each kind of host reaches, and the matrix as an ordinary user."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.containment.hosts import USER, command

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home() -> Iterator[str]:
    """A temporary folder that the ordinary user may write to."""
    with tempfile.TemporaryDirectory(prefix="qedtrio-user-") as folder:
        if os.geteuid() == 0:
            os.chown(folder, USER, USER)

        yield folder


async def run_on(
    mode: str, home: str, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run this interpreter with arguments as on another host."""
    with trio.fail_after(100):
        return await trio.run_process(
            command(mode, sys.executable, *arguments),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": home, "HOME": home, **variables},
        )


@pytest.fixture(scope="session")
def can_change_host() -> None:
    """Skip where this user can make no other host, or no other user."""
    done = subprocess.Popen(
        command("user", sys.executable, "-c", "import qedtrio"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said, _ = done.communicate(timeout=60)
    if done.returncode:
        pytest.skip(f"no ordinary user can run this interpreter: {said[-200:]!r}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "tier"), [("user", "A"), ("no-namespaces", "B"), ("no-landlock", "C")]
)
@pytest.mark.usefixtures("can_change_host")
async def test_a_host_reaches_the_tier_that_it_allows(
    home: str, mode: str, tier: str, host_tier: str
) -> None:
    """Found by trying it, as an ordinary user; the remedy is named for the next."""
    if tier < host_tier:
        pytest.skip(f"this host reaches tier {host_tier} only")
    done = await run_on(mode, home, "-m", "qedtrio", "check-host", "--json")
    report = json.loads(done.stdout)

    assert report["tier"] == tier, (report, done.stderr)
    failed = [
        f for f in report["findings"] if not f["ok"] and f["name"].startswith("tier")
    ]
    assert all(finding["remedy"] for finding in failed)
    assert len(failed) == "ABC".index(tier)


@pytest.mark.slow
@pytest.mark.usefixtures("can_change_host")
async def test_a_host_below_the_minimum_is_refused_with_the_remedy(home: str) -> None:
    """The daemon does not start, and says what to change."""
    variables = {"QEDTRIO_DAEMON__MINIMUM_TIER": "A"}
    arguments = ("-m", "qedtrio", "serve", "--listen", "native=127.0.0.1:0")
    done = await run_on("no-namespaces", home, *arguments, **variables)

    assert done.returncode != 0
    assert b"ready" not in done.stdout
    assert b"daemon.minimum_tier" in done.stderr
    assert re.search(rb"unshare|RestrictNamespaces|sysctl", done.stderr)


MATRICES = {
    "test_attacks.py": "attacks_end",
    "test_kills.py": "killed_fork_server and (A or B)",
}
"""What of them is also passed as an ordinary user."""


@pytest.mark.slow
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.usefixtures("can_change_host")
async def test_the_matrices_hold_for_an_ordinary_user(home: str, matrix: str) -> None:
    """The daemon and its workers are one user there, which root's are not."""
    if os.geteuid() != 0:
        pytest.skip("that is who runs all the other tests")
    options = ("-q", "-p", "no:cacheprovider", "-k", MATRICES[matrix])
    arguments = ("-m", "pytest", *options, f"tests/containment/{matrix}")
    done = await run_on("user", home, *arguments)

    assert done.returncode == 0, done.stdout.decode()[-4000:]
    assert b" passed" in done.stdout
