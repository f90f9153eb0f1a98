"""What verification needs of the processes: a pool that leases workers."""

from collections.abc import Mapping
from typing import Protocol

__all__ = ["JobPool", "JobWorker"]


class JobWorker(Protocol):
    """One subprocess that answers one job at a time."""

    pid: int

    async def call(self, job: Mapping[str, object]) -> Mapping[str, object]:
        """Send `job` and wait for its reply, without a limit of its own.

        A worker whose call was cancelled is of no further use: kill it.

        Raises:
            WorkerLostError: It died.
            BrokenWorkerError: It answered with something that is no message.
        """
        ...

    async def kill(self) -> None:
        """End the process; bounded, and idempotent.

        Raises:
            ReleaseFailedError: Its death was not confirmed in time; the pool
                still owns it and goes on trying.
        """
        ...


class JobPool(Protocol):
    """Source of fresh workers."""

    async def lease(self) -> JobWorker:
        """Wait for a fresh worker, which is then the caller's to kill.

        Cancellation leaks no worker.

        Raises:
            WorkerStartError: None can be started now.
        """
        ...
