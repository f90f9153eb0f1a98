"""The verifier against a pool of fake workers."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import trio
import trio.testing

from qedtrio.config import VerifyConfig
from qedtrio.errors import (
    DrainingError,
    OverloadedError,
    QueueTimeoutError,
    WorkerStartError,
)
from qedtrio.results import Verdict, VerdictStatus
from qedtrio.verify.model import VerifyItem
from qedtrio.verify.service import Verifier
from tests.verify.fakes import FakePool, item

CONFIG = VerifyConfig(workers=2, queue_size=100, deadline_seconds=5, retries=1)
ONE = replace(CONFIG, workers=1)


@asynccontextmanager
async def open_verifier(
    config: VerifyConfig = CONFIG,
    pool: FakePool | None = None,
    queue_seconds: float = 600,
) -> AsyncIterator[tuple[Verifier, FakePool]]:
    """A running verifier; proves on the way out that every worker was killed."""
    pool = pool or FakePool()
    verifier = Verifier(config, pool, queue_seconds=queue_seconds)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(verifier.run)
            yield verifier, pool
            nursery.cancel_scope.cancel()

    assert pool.immortal or not pool.alive
    assert all(worker.kills <= 1 for worker in pool.workers)
    assert verifier.statistics().busy == verifier.statistics().queue == 0


async def collect(verifier: Verifier, items: list[VerifyItem]) -> dict[int, Verdict]:
    """All verdicts of a batch, by index."""
    async with verifier.verify_many(items) as results:
        return {index: verdict async for index, verdict in results}


async def test_items_get_their_own_verdicts() -> None:
    """Status, reward, both sides, method and times belong to the item asked."""
    async with open_verifier() as (verifier, _):
        right = await verifier.verify(item("right", gold=r"\boxed{7}"))
        wrong = await verifier.verify(item("wrong"))

    assert (right.status, right.correct, right.reward) == ("correct", True, 1.0)
    assert (wrong.status, wrong.correct, wrong.reward) == ("wrong", False, 0.0)
    assert (right.gold, right.extracted, right.method) == ("7", "right", "fake")
    assert right.wall_seconds > 0
    assert right.queue_seconds >= 0


async def test_a_response_without_answer_needs_no_worker() -> None:
    """Extraction decides in the daemon, even while no worker can be had."""
    pool = FakePool()
    pool.failing = True
    async with open_verifier(pool=pool) as (verifier, _):
        none = await verifier.verify(VerifyItem(gold="5", prediction="it is 5"))
        gold = await verifier.verify(VerifyItem(gold=" ", prediction=r"\boxed{5}"))
        bad = VerifyItem(gold="\ud800", prediction=r"\boxed{5}")
        odd = await verifier.verify(bad)

    assert (none.status, none.method, none.extracted) == ("no_answer", "extract", None)
    assert (gold.status, gold.reward) == ("gold_error", None)
    assert (odd.status, odd.gold) == ("gold_error", "?")
    assert not pool.started


async def test_workers_are_ready_before_items_come() -> None:
    """Each slot leases its worker when the verifier starts."""
    async with open_verifier() as (verifier, pool):
        await pool.wait_alive(2)
        await trio.testing.wait_all_tasks_blocked()

        assert sorted(verifier.statistics().pids) == [100, 101]


async def test_a_batch_yields_one_verdict_for_each_item() -> None:
    """Verdicts come as they finish, with the index of their item."""
    items = [item(f"{'right' if i % 3 else 'wrong'} {i}") for i in range(70)]
    items[5] = VerifyItem(gold="5", prediction="nothing")
    async with open_verifier() as (verifier, _):
        verdicts = await collect(verifier, items)

        assert sorted(verdicts) == list(range(70))
        for index, verdict in verdicts.items():
            expected = "correct" if index % 3 else "wrong"
            assert verdict.status == ("no_answer" if index == 5 else expected)
        assert Counter(verifier.statistics().verdicts) == Counter(
            verdict.status.value for verdict in verdicts.values()
        )


async def test_a_batch_starts_in_order() -> None:
    """With one worker, items also finish in the order they were given."""
    async with open_verifier(ONE) as (verifier, pool):
        verdicts = await collect(verifier, [item(f"right {i}") for i in range(40)])

    assert list(verdicts) == list(range(40))
    assert pool.started == [f"right {i}" for i in range(40)]


async def test_an_empty_batch_ends_at_once() -> None:
    """No items, no verdicts, no wait."""
    async with open_verifier() as (verifier, _):
        assert await collect(verifier, []) == {}


async def test_a_batch_streams_before_it_is_done() -> None:
    """A finished item is yielded while another still runs."""
    async with (
        open_verifier() as (verifier, pool),
        verifier.verify_many([item("hold"), item("right")]) as results,
    ):
        first = await anext(results)
        pool.let_go.set()
        second = await anext(results)
        with pytest.raises(StopAsyncIteration):
            await anext(results)

    assert (first[0], second[0]) == (1, 0)


async def test_a_batch_does_not_starve_a_single_item() -> None:
    """The queue takes turns between requests."""
    batch = [item("hold"), *(item(f"right {i}") for i in range(90))]
    async with open_verifier(ONE) as (verifier, pool):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, verifier, batch)
            await pool.wait_started(1)
            nursery.start_soon(verifier.verify, item("right single"))
            await trio.testing.wait_all_tasks_blocked()
            pool.let_go.set()

        assert pool.started.index("right single") <= 2


async def test_single_items_keep_their_order() -> None:
    """First come, first served."""
    async with open_verifier(ONE) as (verifier, pool):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(verifier.verify, item("hold"))
            await pool.wait_started(1)
            for number in range(5):
                nursery.start_soon(verifier.verify, item(f"right {number}"))
                await trio.testing.wait_all_tasks_blocked()
            pool.let_go.set()

        assert pool.started[1:] == [f"right {number}" for number in range(5)]


async def test_an_overrun_kills_one_worker_while_others_go_on() -> None:
    """The deadline costs the item and its worker, and nobody else."""
    async with open_verifier(replace(CONFIG, retries=0)) as (verifier, pool):
        async with trio.open_nursery() as nursery:

            async def overrun() -> None:
                verdict = await verifier.verify(item("hang", deadline_seconds=0.2))
                assert verdict.status is VerdictStatus.TIMEOUT
                assert (verdict.correct, verdict.reward) == (None, None)
                assert 0.2 <= verdict.wall_seconds < 1

            nursery.start_soon(overrun)
            await pool.wait_started(1)
            for number in range(20):
                await verifier.verify(item(f"right {number}"))
            assert verifier.statistics().busy == 1
        await pool.wait_alive(2)
        statistics = verifier.statistics()

    (hung,) = [worker for worker in pool.workers if "hang" in worker.answers]
    assert hung.answers[-1] == "hang"
    assert statistics.timeouts == 1
    assert len(pool.workers) == 3


@pytest.mark.parametrize("asked", [0.0, -5.0, 0.01])
async def test_a_deadline_below_the_least_still_lets_work_be_done(asked: float) -> None:
    """A client cannot burn workers with deadlines nobody can meet."""
    async with open_verifier() as (verifier, pool):
        verdict = await verifier.verify(item("right", deadline_seconds=asked))

        assert verdict.status is VerdictStatus.CORRECT
        assert len(pool.workers) <= 2


@pytest.mark.parametrize("asked", [None, 999.0, float("nan"), float("inf")])
async def test_the_configured_deadline_is_the_most(asked: float | None) -> None:
    """An item cannot ask for more time than the configuration grants."""
    config = replace(ONE, deadline_seconds=0.1, retries=0)
    async with open_verifier(config) as (verifier, _):
        verdict = await verifier.verify(item("hang", deadline_seconds=asked))

        assert verdict.status is VerdictStatus.TIMEOUT


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("hang", "timeout"),
        ("die", "worker_died"),
        ("garbage", "worker_died"),
        ("nonsense", "worker_died"),
    ],
)
@pytest.mark.parametrize("retries", [0, 2])
async def test_a_poison_item_is_retried_so_often_and_never_wrong(
    answer: str, status: str, retries: int
) -> None:
    """Each attempt gets a fresh worker; the end is undecided, with no reward."""
    config = replace(ONE, retries=retries)
    async with open_verifier(config) as (verifier, pool):
        verdict = await verifier.verify(item(answer, deadline_seconds=0.05))
        after = await verifier.verify(item("right"))
        statistics = verifier.statistics()

    assert (verdict.status, verdict.reward) == (status, None)
    assert after.status is VerdictStatus.CORRECT
    assert pool.started == [answer] * (1 + retries) + ["right"]
    assert len(pool.workers) == 2 + retries
    assert statistics.retries == retries
    assert statistics.timeouts + statistics.deaths == 1 + retries


async def test_a_stretched_worker_is_replaced_and_its_verdict_kept() -> None:
    """A worker that asks to be replaced gives no second item its heap."""
    async with open_verifier(ONE) as (verifier, pool):
        verdict = await verifier.verify(item("stretch"))
        await verifier.verify(item("right"))

    assert verdict.status is VerdictStatus.RESOURCE_EXCEEDED
    assert [worker.answers for worker in pool.workers] == [["stretch"], ["right"]]


async def test_workers_are_recycled_after_their_share() -> None:
    """Nobody serves more than `recycle_after` items."""
    async with open_verifier(replace(ONE, recycle_after=3)) as (verifier, pool):
        for number in range(7):
            await verifier.verify(item(f"right {number}"))
        await pool.wait_alive(1)
        statistics = verifier.statistics()

    assert [len(worker.answers) for worker in pool.workers] == [3, 3, 1]
    assert (statistics.recycled, statistics.restarts) == (2, 2)


async def test_leaving_while_queued_costs_nothing() -> None:
    """A queued item whose asker goes away never starts."""
    async with open_verifier(ONE) as (verifier, pool):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(verifier.verify, item("hold"))
            await pool.wait_started(1)
            with trio.move_on_after(0.05):
                await verifier.verify(item("right gone"))
            assert verifier.statistics().queue == 0
            pool.let_go.set()
        await verifier.verify(item("right after"))

        assert pool.started == ["hold", "right after"]
        assert verifier.statistics().cancelled == 1
        assert len(pool.workers) == 1


async def test_leaving_while_running_kills_and_replaces_the_worker() -> None:
    """Nobody works for an asker that is gone."""
    async with open_verifier(ONE) as (verifier, pool):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(verifier.verify, item("hang"))
            await pool.wait_started(1)
            nursery.cancel_scope.cancel()
        after = await verifier.verify(item("right"))

        assert after.status is VerdictStatus.CORRECT
        assert pool.workers[0].is_dead
        assert len(pool.alive) == 1
        assert verifier.statistics().timeouts == 0


async def test_leaving_a_batch_ends_all_its_work() -> None:
    """Running items lose their workers, queued ones their place."""
    async with open_verifier() as (verifier, pool):
        async with verifier.verify_many([item(f"hang {i}") for i in range(50)]):
            await pool.wait_started(2)
        assert verifier.statistics().queue == 0
        after = await collect(verifier, [item("right"), item("wrong")])

    assert len(after) == 2
    assert len(pool.started) == 4


async def test_an_error_inside_a_batch_ends_all_its_work() -> None:
    """The block may be left by any door."""
    async with open_verifier() as (verifier, pool):
        with suppress(ZeroDivisionError):
            async with verifier.verify_many([item("hang")] * 9):
                await pool.wait_started(2)
                raise ZeroDivisionError
        assert verifier.statistics().queue == 0


async def test_cancelling_at_every_step_leaves_no_work() -> None:
    """Cancel a batch at each of its checkpoints: nothing stays queued or busy."""
    async with open_verifier() as (verifier, pool):
        for steps in range(12):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(collect, verifier, [item("hold")] * 40)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            assert verifier.statistics().queue == 0
        assert (await verifier.verify(item("right"))).status == "correct"
        assert len(pool.alive) <= 2


async def test_a_full_queue_refuses_a_single_item() -> None:
    """A single item beyond the bound is an error that names when to retry."""
    async with open_verifier(replace(ONE, queue_size=2)) as (verifier, pool):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(verifier.verify, item(f"hold {number}"))
                await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(OverloadedError) as caught:
                await verifier.verify(item("right"))
            pool.let_go.set()

        assert caught.value.retry_after_seconds
        assert verifier.statistics().overloaded == 1


async def test_a_full_queue_marks_the_rest_of_a_batch() -> None:
    """Items of a batch beyond the bound say so, the others are verified."""
    async with (
        open_verifier(replace(ONE, queue_size=4)) as (verifier, pool),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(verifier.verify, item("hold"))
        await pool.wait_started(1)
        async with verifier.verify_many([item("right")] * 10) as results:
            await trio.testing.wait_all_tasks_blocked()
            pool.let_go.set()
            verdicts = [verdict async for _, verdict in results]

    counted = Counter(verdict.status for verdict in verdicts)
    assert counted == {"correct": 4, "overloaded": 6}
    assert all(v.reward is None for v in verdicts if v.status == "overloaded")


async def test_an_item_expires_in_the_queue() -> None:
    """Waiting for a turn has its own limit, and its own error."""
    config = replace(ONE, deadline_seconds=0.2)
    async with (
        open_verifier(config, queue_seconds=0.1) as (verifier, pool),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(verifier.verify, item("hang"))
        await pool.wait_started(1)
        async with verifier.verify_many([item("right")]) as results:
            with pytest.raises(QueueTimeoutError):
                await verifier.verify(item("right"))
            verdicts = [verdict async for _, verdict in results]

    assert [verdict.status for verdict in verdicts] == ["overloaded"]


async def test_a_pool_that_cannot_start_fails_each_item_once() -> None:
    """Singles get the pool's error, batches `worker_died`; nothing loops hot."""
    pool = FakePool()
    pool.failing = True
    async with open_verifier(pool=pool) as (verifier, _):
        await pool.wait_leases(2)
        with pytest.raises(WorkerStartError, match="failing"):
            await verifier.verify(item("right"))
        verdicts = await collect(verifier, [item("right")] * 5)
        leases = pool.leases
        await trio.testing.wait_all_tasks_blocked()

        assert pool.leases == leases == 2 + 1 + 5
        assert {verdict.status for verdict in verdicts.values()} == {"worker_died"}
        assert verifier.statistics().start_failures == leases

        pool.failing = False
        assert (await verifier.verify(item("right"))).status == "correct"


async def test_a_pool_that_fails_after_an_overrun_does_not_hide_it() -> None:
    """The first failure is the item's own; the pool's comes second."""
    async with open_verifier(ONE) as (verifier, pool):
        await pool.wait_alive(1)
        pool.failing = True
        verdict = await verifier.verify(item("hang", deadline_seconds=0.05))

    assert verdict.status is VerdictStatus.TIMEOUT


async def test_a_stuck_pool_counts_as_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that never returns is given up, and said."""
    monkeypatch.setattr("qedtrio.verify.slot.LEASE_SECONDS", 0.05)
    pool = FakePool()
    pool.stuck = True
    async with open_verifier(ONE, pool) as (verifier, _):
        with pytest.raises(WorkerStartError, match="no verify worker within"):
            await verifier.verify(item("right"))


async def test_a_worker_that_cannot_be_killed_is_counted() -> None:
    """Its slot goes on with another, and the statistics show it."""
    async with open_verifier(replace(ONE, retries=0)) as (verifier, pool):
        pool.immortal = True
        await verifier.verify(item("die"))
        assert (await verifier.verify(item("right"))).status == "correct"
        assert verifier.statistics().release_failures == 1


async def test_stopping_answers_everybody() -> None:
    """Singles are told to retry elsewhere, batches end `cancelled`, never wrong."""
    pool = FakePool()
    statuses: list[str] = []
    verifier = Verifier(CONFIG, pool)

    async def single(answer: str) -> None:
        with pytest.raises(DrainingError):
            await verifier.verify(item(answer))
        statuses.append("draining")

    async def batch() -> None:
        verdicts = await collect(verifier, [item("hang")] * 3)
        statuses.extend(verdict.status for verdict in verdicts.values())

    with trio.fail_after(10):
        async with trio.open_nursery() as askers, trio.open_nursery() as nursery:
            await nursery.start(verifier.run)
            askers.start_soon(single, "hang")
            askers.start_soon(batch)
            await pool.wait_started(2)
            askers.start_soon(single, "hang queued")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

        assert Counter(statuses) == {"draining": 2, "cancelled": 3}
        assert not pool.alive
        with pytest.raises(DrainingError):
            await verifier.verify(item("right"))
        with pytest.raises(DrainingError):
            async with verifier.verify_many([]):
                pass


async def test_nothing_is_admitted_before_the_start() -> None:
    """An item that nobody would ever take is refused."""
    verifier = Verifier(CONFIG, FakePool())

    with pytest.raises(WorkerStartError, match="not started"):
        await verifier.verify(item("right"))


async def test_a_defect_costs_its_item_and_not_the_verifier() -> None:
    """An exception that nobody foresaw is answered as retryable, and logged."""
    async with open_verifier(ONE) as (verifier, pool):
        with pytest.raises(WorkerStartError, match="defect"):
            await verifier.verify(item("crash"))
        after = await verifier.verify(item("right"))

        assert after.status == "correct"
        assert len(pool.workers) == 2
