"""A process that will not die: owned, named, tried again, and never hidden."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from qedtrio.sandbox.tiers import Tier
from tests.system.conftest import Api, open_client, open_daemon

FREEZER = Path("/sys/fs/cgroup/freezer")
"""Version 1 of the freezer: what it holds does not even die of SIGKILL."""

pytestmark = pytest.mark.slow


class Freezer:
    """A control group whose processes stand still."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def freeze(self, pid: int) -> int:
        """Stop a process for good; return a descriptor that tells its death."""
        (self._folder / "cgroup.procs").write_text(str(pid))
        (self._folder / "freezer.state").write_text("FROZEN")
        return os.pidfd_open(pid)

    def thaw(self) -> None:
        """Let them go on, which those that were killed do not."""
        (self._folder / "freezer.state").write_text("THAWED")


@contextmanager
def open_freezer(name: str) -> Iterator[Freezer]:
    """Make a freezer, where this host lets us have one."""
    folder = FREEZER / f"qedtrio-tests-{os.getpid()}-{name}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no freezer of cgroup version 1: {error}")
    freezer = Freezer(folder)
    try:
        yield freezer
    finally:
        freezer.thaw()
        for _ in range(1000):
            with suppress(OSError):  # those thawed above die in a moment
                folder.rmdir()
                break


async def read_status(api: Api) -> dict[str, Any]:
    """The whole of `/v1/status`."""
    return await api.get("/v1/status")


def counts(status: dict[str, Any]) -> tuple[int, int]:
    """Orphaned sessions, and dying workers."""
    return status["sessions"]["orphans"], status["pools"]["science"]["dying"]


async def worker_of(api: Api, session: str) -> dict[str, Any]:
    """The worker of a session, as `/v1/status` names it."""
    status = await read_status(api)
    workers = status["pools"]["science"]["workers"]
    (found,) = [worker for worker in workers if worker["session_id"] == session]
    return dict(found)


async def wait_dead(pidfd: int) -> None:
    """Wait for the end of a process."""
    await trio.lowlevel.wait_readable(pidfd)
    os.close(pidfd)


async def wait_forgotten(api: Api, session: str) -> None:
    """Wait until a session is no more; the daemon tells when asked only."""
    while (await api.client.get(f"/v1/sessions/{session}")).status_code == 200:  # noqa: ASYNC110
        await trio.lowlevel.checkpoint()


async def owned_named_and_buried_later(freezer: Freezer, tier: str) -> None:
    """A close fails for everybody who asks, until the death is seen."""
    with trio.fail_after(60):
        async with (
            open_daemon("--strongest-tier", tier) as daemon,
            open_client(daemon.url) as client,
        ):
            api = Api(client)
            await api.post("/v1/sessions", 201, session_id="s")
            pidfd = freezer.freeze((await worker_of(api, "s"))["pid"])
            refused = await client.delete("/v1/sessions/s")
            again: list[int] = []

            async def close_again() -> None:
                again.append((await client.delete("/v1/sessions/s")).status_code)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(close_again)
                nursery.start_soon(close_again)
                await trio.testing.wait_all_tasks_blocked()
                status = await read_status(api)
                metrics = (await client.get("/metrics")).text
                named = await worker_of(api, "s")
                freezer.thaw()
            await wait_dead(pidfd)

            assert refused.status_code == 503
            assert refused.json()["code"] == "release_failed"
            assert named["state"] == "dying"
            assert counts(status) == (1, 1)
            assert 'qedtrio_workers{pool="science",state="dying"} 1.0' in metrics
            assert 'qedtrio_sessions{state="orphan"} 1.0' in metrics
            assert again == [200, 200], "it can die now"
            assert counts(await read_status(api)) == (0, 0)


async def buried_unasked(freezer: Freezer, tier: str) -> None:
    """The pool is killed meanwhile, and returns; the orphan ends when it can."""
    with trio.fail_after(60):
        async with (
            open_daemon("--strongest-tier", tier) as daemon,
            open_client(daemon.url) as client,
        ):
            api = Api(client)
            await api.post("/v1/sessions", 201, session_id="s")
            worker = await worker_of(api, "s")
            pidfd = freezer.freeze(worker["pid"])
            (launcher,) = [
                child
                for child in daemon.children()
                if worker["pid"] in {p.pid for p in child.children(recursive=True)}
            ]
            launcher.kill()
            assert (await client.delete("/v1/sessions/s")).status_code == 503
            await api.post("/v1/sessions", 201, session_id="next")
            assert (await api.run("next", "1 + 1"))["result"] == "2"
            assert (await worker_of(api, "s"))["state"] == "dying"
            freezer.thaw()
            await wait_dead(pidfd)
            await wait_forgotten(api, "s")

            closed = await client.delete("/v1/sessions/s")
            assert closed.json()["outcome"] == "already_closed"


async def left_behind_loudly(freezer: Freezer, tier: str) -> None:
    """It neither hangs nor claims success, and names the process."""
    with trio.fail_after(60):
        async with (
            open_daemon("--strongest-tier", tier, exit_code=1) as daemon,
            open_client(daemon.url) as client,
        ):
            api = Api(client)
            await api.post("/v1/sessions", 201, session_id="s")
            worker = await worker_of(api, "s")
            pidfd = freezer.freeze(worker["pid"])
            daemon.process.send_signal(signal.SIGTERM)
            with trio.fail_after(25):
                assert await daemon.process.wait() == 1
        freezer.thaw()
        await wait_dead(pidfd)


SCENARIOS = [
    (owned_named_and_buried_later, "A"),
    (owned_named_and_buried_later, "B"),
    (buried_unasked, "A"),
    (left_behind_loudly, "A"),
]


async def test_a_process_that_will_not_die(host_tier: Tier) -> None:
    """It stays owned, is named, and tried again; side by side, as all wait long."""
    with ExitStack() as freezers:
        async with trio.open_nursery() as nursery:
            for scenario, tier in SCENARIOS:
                if host_tier.reaches(Tier(tier)):
                    name = f"{scenario.__name__}-{tier}"
                    freezer = freezers.enter_context(open_freezer(name))
                    nursery.start_soon(scenario, freezer, tier)
