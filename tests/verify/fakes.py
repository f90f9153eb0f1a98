"""A pool of in-process workers that do as their item's answer says.

Answers: `right` and `wrong` are judged at once; `hold` waits until the pool's
`let_go` is set; `hang` never answers; `die`, `crash`, `garbage`, `nonsense`,
`stretch` do that. A suffix after a space makes answers distinct.
"""

from collections.abc import Mapping

import trio

from qedtrio.errors import (
    BrokenWorkerError,
    ReleaseFailedError,
    WorkerLostError,
    WorkerStartError,
)
from qedtrio.verify.model import VerifyItem
from qedtrio.verify.options import VerifyOptions

__all__ = ["FakePool", "FakeWorker", "item"]


def item(
    answer: str, *, deadline_seconds: float | None = None, gold: str = "g"
) -> VerifyItem:
    """An item whose worker does as `answer` says."""
    options = VerifyOptions(deadline_seconds=deadline_seconds)
    return VerifyItem(gold=gold, prediction=f"\\boxed{{{answer}}}", options=options)


class FakePool:
    """Leases workers, and remembers what became of them.

    Attributes:
        workers: All ever leased.
        started: Answers, in the order their calls began.
        failing: While set, leases raise WorkerStartError.
        stuck: While set, leases never return.
        immortal: While set, kills raise ReleaseFailedError.
        let_go: Ends every `hold`.
    """

    def __init__(self) -> None:
        self.workers: list[FakeWorker] = []
        self.started: list[str] = []
        self.leases = 0
        self.failing = self.stuck = self.immortal = False
        self.let_go = trio.Event()
        self._news = trio.lowlevel.ParkingLot()

    @property
    def alive(self) -> "list[FakeWorker]":
        """Workers leased and not killed."""
        return [worker for worker in self.workers if not worker.is_dead]

    async def lease(self) -> "FakeWorker":
        """Start one more worker."""
        self.leases += 1
        await trio.lowlevel.checkpoint()
        if self.failing:
            self.tell()
            raise WorkerStartError("the pool is failing")
        if self.stuck:
            self.tell()
            await trio.sleep_forever()
        worker = FakeWorker(self, len(self.workers) + 100)
        self.workers.append(worker)
        self.tell()
        return worker

    def tell(self) -> None:
        """Wake those who wait for something to be so."""
        self._news.unpark_all()

    async def wait_started(self, count: int) -> None:
        """Wait until so many calls have begun."""
        while len(self.started) < count:
            await self._news.park()

    async def wait_leases(self, count: int) -> None:
        """Wait until so many leases have been asked for and decided."""
        while self.leases < count:
            await self._news.park()

    async def wait_alive(self, count: int) -> None:
        """Wait until exactly so many workers live."""
        while len(self.alive) != count:
            await self._news.park()


class FakeWorker:
    """One worker; checks that its owner keeps the contract."""

    def __init__(self, pool: FakePool, pid: int) -> None:
        self.pid = pid
        self.is_dead = False
        self.kills = 0
        self.answers: list[str] = []
        self._pool = pool
        self._is_spoilt = False

    async def call(self, job: Mapping[str, object]) -> Mapping[str, object]:
        """Do as the answer says."""
        assert not self.is_dead, "called after its death"
        assert not self._is_spoilt, "called after a call that did not end"
        self._is_spoilt = True
        answer = str(job["answer"])
        self.answers.append(answer)
        self._pool.started.append(answer)
        self._pool.tell()
        await trio.lowlevel.checkpoint()
        reply = await self._act(answer.split()[0])
        self._is_spoilt = False
        return reply

    async def _act(self, what: str) -> Mapping[str, object]:
        reply: dict[str, object] = {"status": "wrong", "method": "fake", "reason": "r"}
        match what:
            case "hang":
                await trio.sleep_forever()
            case "hold":
                await self._pool.let_go.wait()
            case "die":
                raise WorkerLostError("killed by signal 9")
            case "crash":
                raise ValueError("a defect of the daemon")
            case "garbage":
                raise BrokenWorkerError("not a message")
            case "nonsense":
                return {"status": "timeout", "method": "fake", "reason": "r"}
            case "stretch":
                return reply | {"status": "resource_exceeded", "recycle": True}
        return reply if what == "wrong" else reply | {"status": "correct"}

    async def kill(self) -> None:
        """Die, or be stuck."""
        self.kills += 1
        await trio.lowlevel.checkpoint()
        if self._pool.immortal:
            raise ReleaseFailedError("stuck in the kernel")
        self.is_dead = True
        self._pool.tell()
