"""Opening a launcher, and letting it end its pool."""

import logging
import os
import signal
import socket
import subprocess  # for its constants
from contextlib import suppress

import trio

from qedtrio.workers.control import Control
from qedtrio.workers.profile import Profile, launcher_environment

__all__ = ["relay_output", "run_launcher"]

END_SECONDS = 3.0

log = logging.getLogger(__name__)


async def run_launcher(
    profile: Profile,
    root: str,
    theirs: socket.socket,
    ours: Control,
    *,
    task_status: trio.TaskStatus[trio.Process],
) -> None:
    """Open a launcher and hold it until it has ended.

    Cancellation hangs up, so that it sweeps its pool, and then kills what is
    left of it.

    Args:
        profile: What it prepares.
        root: Empty folder to build the pool's root on.
        theirs: Its end of the control socket.
        ours: The other end.
        task_status: Told the process.
    """

    async def end(process: trio.Process) -> None:
        ours.close()
        with trio.move_on_after(END_SECONDS):
            await process.wait()
        if process.returncode is None:  # so it still has its number
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)

    await trio.run_process(
        profile.launcher_arguments(root, theirs.fileno()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[theirs.fileno()],
        env=launcher_environment(),
        start_new_session=True,
        check=False,
        deliver_cancel=end,
        task_status=task_status,
    )


async def relay_output(process: trio.Process, pool: str) -> None:
    """Log what the preload prints, in bounded pieces."""
    assert process.stderr is not None
    async with process.stderr as stderr:
        async for part in stderr:
            text = bytes(part[:2000]).decode("utf-8", "replace").strip()
            log.info("pool printed", extra={"pool": pool, "text": text})
