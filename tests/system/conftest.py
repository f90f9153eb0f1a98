"""A real daemon as a process of its own, on a free port."""

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import psutil
import pytest
import trio

from qedtrio.cli.bench.daemon import SERVE, kill_group, wait_ready

LIGHT = {
    "QEDTRIO_POOLS__SCIENCE__PRELOAD": "",
    "QEDTRIO_POOLS__SCIENCE__READY_WORKERS": "1",
    "QEDTRIO_VERIFY__WORKERS": "1",
    "QEDTRIO_LOG__LEVEL": "warning",
}
"""A daemon that starts at once, for tests that need no preload."""


@dataclass
class Running:
    """A daemon under test."""

    url: str
    process: trio.Process

    def children(self) -> list[psutil.Process]:
        """The launchers of its pools."""
        return list(psutil.Process(self.process.pid).children())

    def descendants(self) -> list[psutil.Process]:
        """Every process below the daemon, those of other namespaces included."""
        return list(psutil.Process(self.process.pid).children(recursive=True))


async def end(process: trio.Process) -> None:
    """End a daemon whose test failed, so that it can clean up."""
    process.terminate()
    with trio.move_on_after(15):
        await process.wait()
    await kill_group(process)


@asynccontextmanager
async def open_daemon(
    *arguments: str, exit_code: int = 0, **variables: str
) -> AsyncIterator[Running]:
    """Run `qedtrio serve` for the length of the block, and end it with SIGTERM."""
    run = partial(
        trio.run_process,
        [*SERVE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        check=False,
        env={**os.environ, **LIGHT, **variables},
        start_new_session=True,
        deliver_cancel=end,
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        try:
            yield Running(await wait_ready(process), process)
            process.terminate()
            with trio.fail_after(20):
                assert await process.wait() == exit_code
        finally:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                await trio.aclose_forcefully(pipe)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A stock HTTP client of the daemon."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        yield client


@dataclass
class Api:
    """The calls that tests make, each checked for its status."""

    client: httpx2.AsyncClient

    async def post(
        self, path: str, status: int = 200, /, **body: object
    ) -> dict[str, object]:
        """POST a body and return the reply."""
        response = await self.client.post(path, json=body)
        assert response.status_code == status, response.text
        answer: dict[str, object] = response.json()
        return answer

    async def get(self, path: str, status: int = 200) -> dict[str, object]:
        """GET a reply."""
        response = await self.client.get(path)
        assert response.status_code == status, response.text
        answer: dict[str, object] = response.json()
        return answer

    async def run(self, session: str, code: str, **fields: object) -> dict[str, object]:
        """Run code in a session."""
        body = {"code": code, **fields}
        return await self.post(f"/v1/sessions/{session}/run", 200, **body)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real inputs, where they are."""
    path = Path(__file__).parents[3] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the real inputs are not beside this checkout")
    return path


__all__ = ["Api", "Running", "open_client", "open_daemon"]
