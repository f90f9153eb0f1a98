"""Many sessions over a few connections, and what the daemon says of them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import trio

from qedtrio.cli.bench.scenarios import RUN, check_run
from qedtrio.cli.calls import Opened, ask
from qedtrio.cli.http import Connection, open_connection

__all__ = ["OpenCrowd", "Status", "open_crowd", "read_status"]

CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """What is read of a worker in the status."""

    pid: int
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """What is read of a pool."""

    workers: list[WorkerSeen] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SessionsSeen:
    """What is read of the sessions."""

    live: int


@dataclass(frozen=True, slots=True)
class Status:
    """What is read of `GET /v1/status`."""

    pools: dict[str, PoolSeen]
    sessions: SessionsSeen


async def read_status(url: str) -> Status:
    """Ask the daemon for its status."""
    async with open_connection(url) as connection:
        return (await ask(connection, "GET", "/v1/status")).json(Status)


@dataclass
class OpenCrowd:
    """Sessions spread over a few connections."""

    held: list[tuple[Connection, list[str]]]
    answered: int = 0

    @property
    def session_ids(self) -> set[str]:
        """The ids of all sessions."""
        return {name for _, names in self.held for name in names}

    async def open_everywhere(self, sessions: int) -> None:
        """Open `sessions` sessions, one at a time on each connection."""
        waiting = iter(range(sessions))

        async def open_some(connection: Connection, names: list[str]) -> None:
            for _ in waiting:
                reply = await ask(connection, "POST", "/v1/sessions", {})
                names.append(reply.json(Opened).session_id)

        await self._everywhere(open_some)

    async def run_everywhere(self) -> None:
        """Run a line in every session."""

        async def run_some(connection: Connection, names: list[str]) -> None:
            for name in names:
                path = f"/v1/sessions/{name}/run"
                check_run(await ask(connection, "POST", path, RUN), "2\n")
                self.answered += 1

        await self._everywhere(run_some)

    async def close_everywhere(self) -> None:
        """Close every session."""

        async def close_some(connection: Connection, names: list[str]) -> None:
            for name in names:
                await ask(connection, "DELETE", f"/v1/sessions/{name}")

        await self._everywhere(close_some)

    async def _everywhere(
        self, task: Callable[[Connection, list[str]], Awaitable[None]]
    ) -> None:
        async with trio.open_nursery() as nursery:
            for connection, names in self.held:
                nursery.start_soon(task, connection, names)


@asynccontextmanager
async def open_crowd(url: str, sessions: int) -> AsyncIterator[OpenCrowd]:
    """Open `sessions` sessions over at most `CONNECTIONS` connections.

    The sessions outlive the block unless they are closed in it.
    """
    async with AsyncExitStack() as stack:
        held = [
            (await stack.enter_async_context(open_connection(url)), list[str]())
            for _ in range(min(CONNECTIONS, sessions))
        ]
        crowd = OpenCrowd(held)
        await crowd.open_everywhere(sessions)
        yield crowd
