"""A run in a worker of its own, which nobody uses before or after."""

from collections.abc import Mapping
from dataclasses import dataclass

import trio

from qedtrio.config import Limits
from qedtrio.errors import RequestError
from qedtrio.results import RunResult
from qedtrio.sessions.execution import Execution
from qedtrio.sessions.model import OnOutput, RunRequest
from qedtrio.workers.leases import lease_worker
from qedtrio.workers.pool import Pool
from qedtrio.workers.worker import Worker

__all__ = ["Once"]

WRITE_SECONDS = 10.0
"""The worker writes the files of a request in far less than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """Where and how a stateless run happens.

    Args:
        pool: Where the worker comes from.
        configured: The daemon's limits.
        limits: Those in force here.
        seed: For the random generators; None for a fresh one.
    """

    pool: Pool
    configured: Limits
    limits: Mapping[str, float]
    seed: int | None

    async def run(
        self,
        request: RunRequest,
        files: Mapping[str, str],
        on_output: OnOutput | None,
    ) -> RunResult:
        """Lease, run, and kill without waiting: the pool confirms the death."""
        arrived = trio.current_time()
        worker = await lease_worker(
            self.pool,
            {"limits": dict(self.limits), "seed": self.seed},
            wait_seconds=self.configured.queue_seconds,
        )
        try:
            if files:
                await _write_files(worker, files)
            return await Execution(
                worker=worker,
                request=request,
                configured=self.configured,
                limits=self.limits,
                arrived=arrived,
                on_output=on_output,
            ).run()
        finally:
            with trio.CancelScope(shield=True):
                await worker.release()


async def _write_files(worker: Worker, files: Mapping[str, str]) -> None:
    with trio.fail_after(WRITE_SECONDS):
        reply = await worker.request({"op": "write", "files": dict(files)})
    if reply["op"] == "failed":
        raise RequestError("$.files", str(reply["error"]))
