"""The `exec` engine: a launcher and fork server for each single worker.

The preload is imported in the worker itself, after its fork, so it may start
threads, and every worker has an address-space layout and a hash seed of its
own. It costs a whole start of the interpreter and of the preload each time.
"""

from collections.abc import Callable
from dataclasses import replace

import trio

from qedtrio.errors import WorkerStartError
from qedtrio.workers.faults import Faults
from qedtrio.workers.fork import ForkServer
from qedtrio.workers.profile import Profile
from qedtrio.workers.worker import Worker

__all__ = ["ExecEngine"]


class ExecEngine:
    """Opens one fork server per worker and ends it with the worker.

    Args:
        profile: What its workers are.
        state_dir: Existing folder for what must lie on the host.
        notify: Called when a worker is gone or buried.
        faults: What goes wrong on purpose; None for nothing.

    Attributes:
        ready: Set once it can spawn.
        failure: Always empty: a failing preload shows in `spawn`.
    """

    def __init__(
        self,
        profile: Profile,
        state_dir: str,
        notify: Callable[[], None],
        faults: Faults | None = None,
    ) -> None:
        self.ready = trio.Event()
        self.failure = ""
        self._profile = replace(profile, preload=(), late_preload=profile.preload)
        self._state_dir = state_dir
        self._notify = notify
        self._faults = faults
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Hold the workers' launchers until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self.ready.set()
            await trio.sleep_forever()

    async def spawn(self) -> Worker:
        """Start a worker and wait until it is sealed, preloaded and serving.

        Cancellation leaves no worker behind.

        Raises:
            WorkerStartError: With the reason.
        """
        assert self._nursery is not None
        await trio.lowlevel.checkpoint_if_cancelled()  # the nursery may be closed
        server = ForkServer(self._profile, self._state_dir, self._notify, self._faults)
        started = _Started(server)
        self._nursery.start_soon(started.hold)
        try:
            await started.settled.wait()
        except trio.Cancelled:
            started.scope.cancel()
            raise
        if started.worker is None:
            raise WorkerStartError(started.failure)
        return started.worker

    def is_dead(self) -> bool:
        """Never: each worker has a fork server of its own."""
        return False


class _Started:
    """One fork server and its only worker."""

    def __init__(self, server: ForkServer) -> None:
        self.settled = trio.Event()
        self.scope = trio.CancelScope()
        self.worker: Worker | None = None
        self.failure = "it ended while starting"
        self._server = server

    async def hold(self) -> None:
        """Keep the fork server for as long as its worker lives."""
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._run_server)
                    await self._server.ready.wait()
                    await self._hold_worker()
                    nursery.cancel_scope.cancel()
        finally:
            self.settled.set()

    async def _run_server(self) -> None:
        await self._server.run()
        self.failure = self._server.failure or self.failure
        self.scope.cancel()

    async def _hold_worker(self) -> None:
        try:
            self.worker = await self._server.spawn()
        except WorkerStartError as error:
            self.failure = str(error)
            self.settled.set()
            await self._server.wait_buried()  # here is who owns its worker
            return
        self.settled.set()
        await self.worker.buried.wait()
