"""What each kind of process must not load, read from fresh interpreters."""

import json
import subprocess
import sys

import pytest

from tests.system.conftest import Api, open_client, open_daemon

HTTP_SIDE = {"trio", "quart", "quart_trio", "hypercorn", "h11", "httpx2"}
HEAVY = HTTP_SIDE | {"sympy", "numpy", "math_verify", "psutil", "click", "rich"}


def loaded_by(statement: str) -> set[str]:
    """Top-level modules of a fresh interpreter after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(  # noqa: TID251  # a plain interpreter is the subject
        [sys.executable, "-c", code], check=True, capture_output=True, timeout=60
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("statement", "never"),
    [
        ("import qedtrio", HEAVY),
        ("import qedtrio; qedtrio.Config; qedtrio.RunResult", HEAVY),
        ("import qedtrio.workers.child.launcher", HEAVY | {"msgspec"}),
        ("import qedtrio.workers.child.session", HEAVY | {"msgspec"}),
        ("import qedtrio.workers.child.jobs", HEAVY | {"msgspec"}),
        ("import qedtrio.verify.compare", HTTP_SIDE | {"numpy", "click", "rich"}),
        ("from qedtrio.cli import main", HTTP_SIDE | {"sympy", "numpy"}),
    ],
)
def test_an_import_stays_light(statement: str, never: set[str]) -> None:
    """Workers pay for nothing of the daemon, the daemon for nothing of theirs."""
    assert not loaded_by(statement) & never


@pytest.mark.slow
async def test_real_workers_load_what_they_need_only() -> None:
    """Asked in a session: no trio, and no sympy unless its pool preloads it."""
    code = "import sys; sorted({name.partition('.')[0] for name in sys.modules})"
    async with open_daemon() as daemon, open_client(daemon.url) as client:
        answer = await Api(client).post("/v1/run", code=code, pool="plain")
        names = set(json.loads(str(answer["result"]).replace("'", '"')))

    assert not names & (HEAVY | {"msgspec"})
