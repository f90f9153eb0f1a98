"""The daemon as its operator meets it: start, stop, kills, and what is left."""

import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import trio

from tests.system.conftest import Api, open_client, open_daemon

ADVERSARY = """
import os, signal, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        while True: time.sleep(1)
    os._exit(0)
"""

pytestmark = pytest.mark.slow


async def all_gone(processes: list[psutil.Process]) -> bool:
    """Wait, bounded, until every process has ended."""
    _, alive = await trio.to_thread.run_sync(
        lambda: psutil.wait_procs(processes, timeout=5)
    )
    return not alive


async def wait_busy(api: Api, session: str) -> None:
    """Wait until a run is on its worker; the daemon tells when asked only."""
    while (await api.get(f"/v1/sessions/{session}"))["idle_seconds"]:  # noqa: ASYNC110
        await trio.lowlevel.checkpoint()


async def wait_draining(client: httpx2.AsyncClient) -> None:
    """Wait until the daemon admits nothing more."""
    while (await client.get("/readyz")).status_code == 200:  # noqa: ASYNC110
        await trio.lowlevel.checkpoint()


async def workers_of(api: Api, pool: str) -> list[dict[str, Any]]:
    """The workers of a pool, as `/v1/status` shows them."""
    status: dict[str, Any] = await api.get("/v1/status")
    workers: list[dict[str, Any]] = status["pools"][pool]["workers"]
    return workers


def own_folders() -> set[Path]:
    """State folders of daemons started by this test run."""
    return set(Path(tempfile.gettempdir()).glob("qedtrio-*"))


def remove_folders(folders: set[Path]) -> set[str]:
    """Remove what a killed daemon could not; return the kinds of what was in it."""
    kinds = set()
    for folder in folders:
        for entry in folder.iterdir():
            kinds.add(entry.name[:5])
            (entry.rmdir if entry.is_dir() else entry.unlink)()
        folder.rmdir()
    return kinds


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name
)
async def test_a_signal_ends_the_daemon_with_nothing_left(
    number: signal.Signals,
) -> None:
    """Exit code 0, and no process of a session survives."""
    with trio.fail_after(60):
        async with open_daemon() as daemon, open_client(daemon.url) as client:
            api = Api(client)
            await api.post("/v1/sessions", 201, session_id="s")
            await api.run("s", ADVERSARY)
            below = daemon.descendants()
            daemon.process.send_signal(number)
            assert await daemon.process.wait() == 0

            assert len(below) > 6
            assert await all_gone(below)


async def test_a_killed_daemon_takes_every_worker_with_it() -> None:
    """SIGKILL leaves nobody to clean up, and nobody is left."""
    with trio.fail_after(60):
        async with (
            open_daemon(exit_code=-signal.SIGKILL) as daemon,
            open_client(daemon.url) as client,
        ):
            api = Api(client)
            await api.post("/v1/sessions", 201, session_id="s")
            await api.run("s", ADVERSARY)
            below = daemon.descendants()
            folders = own_folders()
            daemon.process.kill()
            await daemon.process.wait()
        assert remove_folders(folders) <= {"root-", "daemo"}, (
            "nothing of a session is left"
        )
        assert await all_gone(below)


async def test_a_drain_answers_what_it_interrupts_as_retryable() -> None:
    """A run in flight ends as 503 `draining`, never as a result."""
    with trio.fail_after(60):
        async with (
            open_daemon(QEDTRIO_DAEMON__DRAIN_SECONDS="0.3") as daemon,
            open_client(daemon.url) as client,
        ):
            api = Api(client)
            await api.post("/v1/sessions", 201, session_id="s")
            replies = []

            async def run() -> None:
                replies.append(await api.post(
                    "/v1/sessions/s/run", 503, code="while True: pass"
                ))  # fmt: skip

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await wait_busy(api, "s")
                daemon.process.terminate()

            assert replies[0]["code"] == "draining"


async def test_a_second_signal_skips_the_drain() -> None:
    """An impatient operator is obeyed."""
    with trio.fail_after(60):
        async with (
            open_daemon(QEDTRIO_DAEMON__DRAIN_SECONDS="600") as daemon,
            open_client(daemon.url) as client,
        ):
            api = Api(client)
            await api.post("/v1/sessions", 201, session_id="s")
            async with trio.open_nursery() as nursery:

                async def run() -> None:
                    # Either an answer that it is over, or a lost connection.
                    with suppress(httpx2.TransportError):
                        await client.post(
                            "/v1/sessions/s/run", json={"code": "while True: pass"}
                        )

                nursery.start_soon(run)
                await wait_busy(api, "s")
                daemon.process.terminate()
                await wait_draining(client)
                daemon.process.terminate()
                assert await daemon.process.wait() == 0


async def test_the_owner_of_the_pipe_can_end_it() -> None:
    """`--until-eof`: a daemon whose starter is gone ends by itself."""
    with trio.fail_after(60):
        async with open_daemon("--until-eof") as daemon:
            below = daemon.descendants()
            assert daemon.process.stdin is not None
            await daemon.process.stdin.aclose()
            assert await daemon.process.wait() == 0

            assert await all_gone(below)


async def test_a_dead_fork_server_costs_its_own_sessions_only() -> None:
    """They answer `worker_lost` once; others do not notice; the pool returns."""
    with trio.fail_after(60):
        async with open_daemon() as daemon, open_client(daemon.url) as client:
            api = Api(client)
            await api.post("/v1/sessions", 201, session_id="s")
            await api.post("/v1/sessions", 201, session_id="p", pool="plain")
            await api.run("s", "x = 1")
            await api.run("p", "y = 2")
            (worker,) = [
                worker
                for worker in (await workers_of(api, "science"))
                if worker["session_id"] == "s"
            ]
            (launcher,) = [
                child
                for child in psutil.Process(daemon.process.pid).children()
                if worker["pid"] in {p.pid for p in child.children(recursive=True)}
            ]
            pidfd = os.pidfd_open(worker["pid"])
            launcher.kill()
            await trio.lowlevel.wait_readable(pidfd)  # the worker is dead
            os.close(pidfd)
            lost = await api.post("/v1/sessions/s/run", 500, code="x")

            assert lost["code"] == "worker_lost"
            assert (await api.run("p", "y"))["result"] == "2"
            assert (await api.run("s", "'x' in globals()"))["result"] == "False"
            status = await api.get("/v1/status")
            assert status["pools"]["science"]["restarts"] == 1  # type: ignore[index]
            assert (await api.get("/readyz"))["ready"]


async def test_a_pool_that_cannot_start_is_told_and_does_not_loop() -> None:
    """`/readyz` names the reason; sessions of it fail at once; others work."""
    with trio.fail_after(60):
        async with (
            open_daemon(QEDTRIO_POOLS__SCIENCE__PRELOAD="no_such_module") as daemon,
            open_client(daemon.url) as client,
        ):
            api = Api(client)
            ready = await api.get("/readyz", 503)
            failed = await api.post("/v1/sessions", 503)
            await api.post("/v1/sessions", 201, session_id="p", pool="plain")

            assert "no_such_module" in str(ready["reasons"])
            assert failed["code"] == "worker_start_failed"
            assert "no_such_module" in str(failed["detail"])
            assert (await api.run("p", "1 + 1"))["result"] == "2"
            assert (await api.get("/livez")) is not None
            status = await api.get("/v1/status")
            assert status["pools"]["science"]["restarts"] < 10  # type: ignore[index]


async def test_a_vanished_client_frees_its_session() -> None:
    """The run is interrupted, the state kept, the next answer quick."""
    with trio.fail_after(60):
        async with open_daemon() as daemon, open_client(daemon.url) as client:
            api = Api(client)
            await api.post("/v1/sessions", 201, session_id="s")
            await api.run("s", "x = 5")
            host, _, port = daemon.url.removeprefix("http://").partition(":")
            stream = await trio.open_tcp_stream(host, int(port))
            body = b'{"code": "while True: pass", "deadline_seconds": 30}'
            await stream.send_all(
                b"POST /v1/sessions/s/run HTTP/1.1\r\nhost: x\r\n"
                b"content-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%s" % (len(body), body)
            )
            await wait_busy(api, "s")
            await stream.aclose()

            answer = await api.run("s", "x")
            assert answer["result"] == "5"
            assert answer["queue_seconds"] < 1  # type: ignore[operator]


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (["--listen", "native=999.0.0.1:0"], {}, "999.0.0.1"),
        (["--listen", "nonsense=127.0.0.1:0"], {}, "native"),
        ([], {"QEDTRIO_LIMITS__SESION": "1"}, "limits.sessions"),
        ([], {"QEDTRIO_DAEMON__STATE_DIR": "/nonexistent"}, "state_dir"),
    ],
    ids=["address", "api", "key", "folder"],
)
async def test_a_wrong_configuration_ends_with_one_sentence(
    arguments: list[str], variables: dict[str, str], said: str
) -> None:
    """Exit code 2, and stderr names what to change."""
    import subprocess
    import sys

    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-m", "qedtrio", "serve", *arguments],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )

    assert done.returncode == 2
    assert done.stdout == b""
    lines = [
        line
        for line in done.stderr.decode().splitlines()
        if not line.startswith("20")  # log records begin with their time
    ]
    assert len(lines) == 1
    assert said in lines[0]
