"""A daemon under which starts go wrong, and one that is out of descriptors."""

import resource

import httpx2
import psutil
import pytest
import trio
from click.testing import CliRunner

from qedtrio.cli.serve import command
from qedtrio.workers.faults import Fault
from tests.system.conftest import open_client, open_daemon

pytestmark = pytest.mark.slow

EPISODES = 20
RATES = [f"--inject={fault}=0.05" for fault in Fault]


async def ask(client: httpx2.AsyncClient, code: str) -> str:
    """Run code, trying again whenever the daemon says that this can help."""
    while True:
        reply = await client.post("/v1/run", json={"code": code})
        body = reply.json()
        if reply.status_code == 200 and body["status"] != "signalled":
            return str(body["stdout"])
        if reply.status_code != 200:
            assert body["code"] in {
                "worker_start_failed",
                "worker_lost",
                "queue_timeout",
                "overloaded",
            }, body


async def test_a_client_that_retries_succeeds_under_faults() -> None:
    """Every start may fail, in every way; no answer is wrong, and none hangs."""
    async with (
        open_daemon(
            *RATES,
            "--inject-seed=3",
            QEDTRIO_POOLS__SCIENCE__START_SECONDS="2",
            QEDTRIO_POOLS__SCIENCE__READY_WORKERS="1",
        ) as daemon,
        open_client(daemon.url) as client,
    ):
        with trio.fail_after(60):
            for number in range(EPISODES):
                assert await ask(client, f"print({number})") == f"{number}\n"

            status = (await client.get("/v1/status")).json()
            assert status["sessions"]["orphans"] == 0


async def test_a_daemon_out_of_descriptors_refuses_and_recovers() -> None:
    """It answers 503, does not hang, and goes on once sessions close."""
    async with open_daemon() as daemon, open_client(daemon.url) as client:
        with trio.fail_after(60):
            assert await ask(client, "print(1)") == "1\n"
            process = psutil.Process(daemon.process.pid)
            least = process.num_fds() + 24
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (least, least))
            opened = []
            while True:
                reply = await client.post("/v1/sessions", json={})
                if reply.status_code != 201:
                    break
                opened.append(reply.json()["session_id"])
            assert reply.status_code == 503, reply.text
            assert opened
            for _ in range(5):
                answer = await client.post("/v1/run", json={"code": "print(2)"})
                assert answer.status_code == 503, answer.text
            held = await client.post(
                f"/v1/sessions/{opened[0]}/run", json={"code": "print(3)"}
            )
            assert held.status_code in {200, 503}, held.text
            assert (await client.get("/v1/status")).status_code == 200
            for session in opened:
                await client.delete(f"/v1/sessions/{session}")

            assert await ask(client, "print(4)") == "4\n"


@pytest.mark.parametrize("option", ["nonsense=0.1", "no_fork", "no_fork=2"])
def test_a_fault_that_does_not_exist_is_refused(option: str) -> None:
    """The command ends at once and names the kinds that there are."""
    result = CliRunner().invoke(command, ["--inject", option])

    assert result.exit_code == 2
    assert "start_fails" in result.output
