"""The daemon under measurement: a process of its own, owned by this one.

A process of its own, so that its processor time can be told from ours.
"""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import click
import psutil
import trio

__all__ = ["SERVE", "Daemon", "kill_group", "open_daemon"]

READY_SECONDS = 60.0
END_SECONDS = 30.0
SERVE = (
    sys.executable,
    "-m",
    "qedtrio",
    "serve",
    "--listen",
    "native=127.0.0.1:0",
    "--until-eof",
)
"""The command of a daemon on a free port."""

LINE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running daemon.

    Attributes:
        url: Of its native API.
    """

    url: str
    process: trio.Process

    def cpu_seconds(self) -> float:
        """Read the processor time that the daemon's own process has used."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)


@asynccontextmanager
async def open_daemon(
    *command: str, variables: Mapping[str, str] | None = None
) -> AsyncIterator[Daemon]:
    """Run a daemon for the length of the block.

    Leaving the block sends SIGTERM and waits for the end, bounded; whatever is
    left then, or on cancellation, is killed.

    Args:
        command: Prints the ready line of a native listener; see `serve`.
        variables: Added to its environment.

    Raises:
        click.ClickException: The daemon was not ready in time, or at all.
    """
    run = partial(
        trio.run_process,
        command,
        stdin=subprocess.PIPE,  # held open: the daemon ends when we do
        stdout=subprocess.PIPE,
        check=False,
        env={**os.environ, "QEDTRIO_LOG__LEVEL": "warning", **(variables or {})},
        start_new_session=True,
        deliver_cancel=kill_group,
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        try:
            yield Daemon(await wait_ready(process), process)
            process.terminate()
            with trio.move_on_after(END_SECONDS):
                await process.wait()
        finally:
            nursery.cancel_scope.cancel()  # nothing is left to cancel after a clean end


async def kill_group(process: trio.Process) -> None:  # noqa: ASYNC124
    """Kill the whole process group at once."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


async def wait_ready(process: trio.Process) -> str:
    """Read the ready line and return the URL in it."""
    assert process.stdout is not None
    line = b""
    with trio.move_on_after(READY_SECONDS):
        while b"\n" not in line and len(line) < LINE_BYTES:
            if not (data := await process.stdout.receive_some(LINE_BYTES)):
                break
            line += data
    match line.split(maxsplit=2):
        case [b"ready", b"native", url] if url.endswith(b"\n"):
            return url.strip().decode()
    raise click.ClickException(f"the daemon did not become ready; it said {line!r}")
