"""Workers that call one function per request, for what serves jobs."""

from collections.abc import Mapping
from dataclasses import dataclass

from qedtrio.errors import BrokenWorkerError
from qedtrio.workers.leases import lease_worker
from qedtrio.workers.pool import Pool
from qedtrio.workers.worker import Worker

__all__ = ["JobWorker", "JobWorkers"]

LEASE_SECONDS = 30.0


class JobWorker:
    """One worker, bound to its function.

    Attributes:
        pid: Host process id.
    """

    def __init__(self, worker: Worker) -> None:
        self.pid = worker.pid
        self._worker = worker

    async def call(self, job: Mapping[str, object]) -> Mapping[str, object]:
        """Call the function with `job` and wait for what it returns.

        A worker whose call was cancelled is of no further use: kill it.

        Raises:
            WorkerLostError: It died.
            BrokenWorkerError: It answered with something that is no message.
        """
        reply = await self._worker.request({"op": "job", "job": dict(job)})
        value = reply.get("value")
        if not isinstance(value, dict):
            raise BrokenWorkerError("a job's reply held no value")
        return value

    async def kill(self) -> None:
        """End the process; bounded, and idempotent.

        Raises:
            ReleaseFailedError: It is not confirmed dead; the pool goes on trying.
        """
        await self._worker.kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWorkers:
    """Leases workers of a pool that calls `function`.

    Args:
        pool: With `JOB_ENTRY` as its entry.
        function: `module:name`, importable in the workers.
        limits: Keys of `config.Limits` that each worker lowers for itself.
    """

    pool: Pool
    function: str
    limits: Mapping[str, float]

    async def lease(self) -> JobWorker:
        """Wait for a fresh worker, which is then the caller's to kill.

        Cancellation leaks no worker.

        Raises:
            WorkerStartError: None can be started now.
            QueueTimeoutError: None became free in time.
        """
        terms = {"function": self.function, "limits": dict(self.limits)}
        worker = await lease_worker(self.pool, terms, wait_seconds=LEASE_SECONDS)
        return JobWorker(worker)
