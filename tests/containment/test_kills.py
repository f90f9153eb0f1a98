"""The kill matrix: every adversary, every way to die, every tier; no survivors.

Adversaries share a daemon, one session each, and then die of what their row
says. Who lived before is found in the tree of processes and held by pidfd;
who lives after is looked for on the whole host, by the mark that an
adversary's processes wear. Neither asks the daemon.
"""

import json
import os
import select
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import trio

from qedtrio.sandbox.tiers import Tier
from qedtrio.state import remove_stale_folders
from tests.containment.adversaries import ADVERSARIES, program
from tests.system.conftest import Api, Running, open_client, open_daemon

VARIABLES = {
    "QEDTRIO_POOLS__SCIENCE__READY_WORKERS": "0",  # all below it is an adversary's
    "QEDTRIO_POOLS__ALONE__ENGINE": "exec",
    "QEDTRIO_POOLS__ALONE__READY_WORKERS": "0",
    "QEDTRIO_POOLS__PLAIN__READY_WORKERS": "0",
    "QEDTRIO_DAEMON__DRAIN_SECONDS": "0.2",
    "QEDTRIO_LOG__LEVEL": "error",
}
FEW = ("hidden", "bomb", "stopped", "spawner", "holder")
POOLS = ("science", "alone", "plain")
DEATH_SECONDS = 15.0
"""Deaths that nobody waits for in the daemon have this long; most take none."""

pytestmark = pytest.mark.slow


@dataclass
class Prey:
    """An adversary at large in a session."""

    name: str
    way: str
    pool: str
    deadline_seconds: float = 60.0
    up: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """Fits in a process name, and no two tests of a run share one."""
        number = [*ADVERSARIES].index(self.name)
        return f"q{os.getpid()}{self.way[:4]}{self.pool[:1]}{number}"

    async def hunt(self, client: httpx2.AsyncClient) -> None:
        """Run it in a session of its own until that ends, however it does."""
        try:
            with self.scope, suppress(httpx2.TransportError):
                await self._run(client)
        finally:
            self.up.set()  # nobody is to wait for one that failed
            self.ended.set()

    async def _run(self, client: httpx2.AsyncClient) -> None:
        opened = await client.post(
            "/v1/sessions", json={"session_id": self.mark, "pool": self.pool}
        )
        assert opened.status_code == 201, opened.text
        async with client.stream(
            "POST",
            f"/v1/sessions/{self.mark}/run",
            json={
                "code": program(self.name, self.mark),
                "deadline_seconds": self.deadline_seconds,
            },
            headers={"accept": "application/x-ndjson"},
        ) as response:
            async for line in response.aiter_lines():
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if "up" in event.get("text", ""):
            self.up.set()
        if event["event"] == "result":
            self.result = event


def marked(preys: Iterable[Prey]) -> dict[int, str]:
    """Every living process of this host that wears one of their marks."""
    found = {}
    marks = [prey.mark.encode() for prey in preys]
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it ended
            told = (entry / "stat").read_bytes() + (entry / "cmdline").read_bytes()
            if any(mark in told for mark in marks) and b") Z " not in told:
                found[int(entry.name)] = repr(told)
    return found


async def wait_unmarked(preys: list[Prey]) -> None:
    """Wait until nobody wears their marks, not those just born either."""
    with trio.move_on_after(DEATH_SECONDS):
        while found := marked(preys):
            with ExitStack() as opened:
                await Victims(found, opened).wait_dead()
    assert marked(preys) == {}


class Victims:
    """Processes that are to die, held by descriptors."""

    def __init__(self, pids: Iterable[int], opened: ExitStack) -> None:
        self._pidfds: dict[int, str] = {}
        for pid in pids:
            with suppress(OSError):  # it ended meanwhile
                pidfd = os.pidfd_open(pid)
                opened.callback(os.close, pidfd)
                name = Path(f"/proc/{pid}/comm").read_text(errors="replace")
                self._pidfds[pidfd] = f"{pid} {name}"

    def __len__(self) -> int:
        return len(self._pidfds)

    def alive(self) -> list[str]:
        """Those that still live, at this moment."""
        ready, _, _ = select.select([*self._pidfds], [], [], 0)
        return [name for pidfd, name in self._pidfds.items() if pidfd not in ready]

    async def wait_dead(self) -> None:
        """Wait until all are dead, bounded; fails with who is not."""
        with trio.move_on_after(DEATH_SECONDS):
            for pidfd in self._pidfds:
                await trio.lowlevel.wait_readable(pidfd)
        assert self.alive() == []


@dataclass
class Hunt:
    """A daemon of one tier, and the adversaries in it."""

    tier: str
    daemon: Running
    api: Api
    opened: ExitStack
    nursery: trio.Nursery
    tame: set[psutil.Process] = field(default_factory=set)

    def preys(self, way: str, pool: str, deadline_seconds: float = 60.0) -> list[Prey]:
        """One of every adversary; tier C is for development, and gets a few."""
        names = FEW if self.tier == "C" else tuple(ADVERSARIES)
        return [Prey(name, way, pool, deadline_seconds) for name in names]

    async def release(self, preys: list[Prey]) -> Victims:
        """Set adversaries free and wait until all are at large."""
        self.tame = set(self.daemon.descendants())
        for prey in preys:
            self.nursery.start_soon(prey.hunt, self.api.client)
        for prey in preys:
            await prey.up.wait()
        assert not [prey for prey in preys if prey.ended.is_set()]
        wild = set(self.daemon.descendants()) - self.tame
        assert len(wild) > 3 * len(preys)
        return Victims((p.pid for p in wild), self.opened)

    def all(self) -> Victims:
        """Everything below the daemon."""
        below = self.daemon.descendants()
        return Victims((process.pid for process in below), self.opened)

    async def wait_recovered(self, pool: str) -> None:
        """Wait until a pool serves again; it may still be dying when asked."""
        body = {"code": "1 + 1", "pool": pool}
        while True:
            response = await self.api.client.post("/v1/run", json=body)
            if response.status_code != 503:
                break
        assert response.json()["result"] == "2"

    async def workers(self, pool: str) -> list[psutil.Process]:
        """The workers of a pool that serve a session."""
        status: dict[str, Any] = await self.api.get("/v1/status")
        return [
            psutil.Process(worker["pid"])
            for worker in status["pools"][pool]["workers"]
            if worker["session_id"]
        ]


@asynccontextmanager
async def open_hunt(tier: str, exit_code: int = 0) -> AsyncIterator[Hunt]:
    """Run a daemon of a tier for the length of the block."""
    arguments = ("--strongest-tier", tier)
    with trio.fail_after(120), ExitStack() as opened:
        async with (
            open_daemon(*arguments, exit_code=exit_code, **VARIABLES) as daemon,
            open_client(daemon.url) as client,
            trio.open_nursery() as nursery,
        ):
            api = Api(client)
            status = await api.get("/v1/status")
            assert status["tier"] == tier
            yield Hunt(tier, daemon, api, opened, nursery)
            nursery.cancel_scope.cancel()


def some_alone(way: str) -> list[Prey]:
    """Some with a launcher of their own."""
    return [Prey(name, way, "alone") for name in ("hidden", "bomb", "stopped")]


@pytest.fixture(params=Tier)
def tier(request: pytest.FixtureRequest, host_tier: Tier) -> str:
    """Each tier that this host reaches."""
    tier: Tier = request.param
    if not host_tier.reaches(tier):
        pytest.skip(f"this host reaches tier {host_tier} only")
    return tier


async def test_a_close_a_deadline_a_lost_client_and_a_sigterm_leave_no_survivor(
    tier: str,
) -> None:
    """A close and a deadline are answered after the deaths, and an exit as well."""
    async with open_hunt(tier) as hunt:
        left = hunt.preys("left", "science")
        closed = hunt.preys("close", "science") + some_alone("close")
        late = hunt.preys("late", "plain", deadline_seconds=4.0)
        victims = await hunt.release(left + closed)
        overdue = await hunt.release(late)
        for prey in left:
            prey.scope.cancel()
        for prey in closed:
            answer = await hunt.api.client.delete(f"/v1/sessions/{prey.mark}")
            assert marked([prey]) == {}, "gone when the answer comes"
            assert answer.status_code == 200, answer.text
        for prey in late:
            await prey.ended.wait()
            assert prey.result["status"] == "timed_out", prey
            assert prey.result["state"] == "lost"
        assert marked(late) == {}
        assert overdue.alive() == []
        await victims.wait_dead()
        await wait_unmarked(left)

        ended = hunt.preys("term", "science") + some_alone("term")
        await hunt.release(ended)
        victims = hunt.all()
        hunt.daemon.process.send_signal(signal.SIGTERM)
        await hunt.daemon.process.wait()
        assert victims.alive() == []
        assert marked(ended) == {}


async def test_a_killed_fork_server_launcher_or_daemon_leaves_no_survivor(
    tier: str,
) -> None:
    """Of the first two the pools recover; the last takes all along."""
    async with open_hunt(tier, -signal.SIGKILL) as hunt:
        served = hunt.preys("server", "science")
        launched = hunt.preys("launcher", "plain") + some_alone("launcher")
        victims = await hunt.release(served + launched)
        servers = {worker.ppid() for worker in await hunt.workers("science")}
        doomed = await hunt.workers("plain") + await hunt.workers("alone")
        for child in hunt.daemon.children():
            if set(doomed) & set(child.children(recursive=True)):
                child.kill()
        assert len(servers) == 1
        os.kill(servers.pop(), signal.SIGKILL)
        await victims.wait_dead()
        await wait_unmarked(served + launched)
        for pool in POOLS:
            await hunt.wait_recovered(pool)

        killed = hunt.preys("daemon", "science") + some_alone("daemon")
        await hunt.release(killed)
        victims = hunt.all()
        hunt.daemon.process.kill()
        await hunt.daemon.process.wait()
        await victims.wait_dead()
        await wait_unmarked(killed)
    assert remove_stale_folders("") == 1
