"""Opening, closing, expiry, queueing, and cancellation at every await."""

from collections.abc import Awaitable, Callable
from functools import partial

import psutil
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from qedtrio.errors import (
    DrainingError,
    OverloadedError,
    QueueTimeoutError,
    SessionClosedError,
    SessionConflictError,
    SessionNotFoundError,
    WorkerLostError,
)
from qedtrio.results import RunResult, RunStatus
from qedtrio.sandbox.tiers import Tier
from qedtrio.sessions.model import RunRequest, SessionOptions
from qedtrio.sessions.registry import Sessions
from tests.sessions.conftest import open_sessions

LOOP = RunRequest(code="while True: pass", deadline_seconds=9)


def worker_pid(sessions: Sessions, session_id: str = "s") -> int:
    """Host process id of a session's worker."""
    worker = sessions.find(session_id)._worker
    assert worker is not None
    return worker.pid


async def test_the_same_id_and_options_find_the_same_session(
    sessions: Sessions, session: str
) -> None:
    """Creating is idempotent; other options are a conflict."""
    again, new = await sessions.create("s", SessionOptions(seed=7))

    assert (again.session_id, new) == ("s", False)
    with pytest.raises(SessionConflictError):
        await sessions.create("s", SessionOptions(seed=8))


async def test_closing_is_idempotent_and_spends_the_id(
    sessions: Sessions, session: str
) -> None:
    """After a close the worker is dead, the id is gone for good."""
    pid = worker_pid(sessions)

    assert await sessions.close("s") == "closed"
    assert not psutil.pid_exists(pid)
    assert await sessions.close("s") == "already_closed"
    with pytest.raises(SessionConflictError):
        await sessions.create("s", SessionOptions(seed=7))
    with pytest.raises(SessionClosedError):
        await sessions.run("s", RunRequest(code="1"))
    with pytest.raises(SessionNotFoundError):
        await sessions.close("never")


async def test_a_close_during_the_start_leaves_nothing(
    host_tier: Tier, state_dir: str
) -> None:
    """Close waits for a start in progress, and the creator is told."""
    async with open_sessions(host_tier, state_dir) as (sessions, pool):
        outcomes: list[str] = []

        async def create() -> None:
            try:
                await sessions.create("s", SessionOptions())
            except SessionClosedError:
                outcomes.append("told")

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(create)
                await wait_all_tasks_blocked()
                assert sessions.statistics().starting == 1
                assert await sessions.close("s") == "closed"
            assert outcomes == ["told"]
            assert pool.statistics().queue == 0
            assert sessions.statistics().starting == 0


async def test_a_cancelled_creator_does_not_cancel_the_start(
    host_tier: Tier, state_dir: str
) -> None:
    """The start belongs to the session; a later request finds it open."""
    async with open_sessions(host_tier, state_dir) as (sessions, _):
        with trio.fail_after(20):
            with trio.CancelScope() as scope:
                scope.cancel()
                await sessions.create("s", SessionOptions())
            assert scope.cancelled_caught
            _, new = await sessions.create("s", SessionOptions())

        assert not new


async def test_runs_of_a_session_take_turns_in_order(
    sessions: Sessions, session: str
) -> None:
    """Concurrent runs never mix, and come in order of arrival."""
    results: list[str | None] = []

    async def run(number: int) -> None:
        request = RunRequest(code=f"print({number}); {number}")
        answer = await sessions.run("s", request)
        assert answer.stdout == f"{number}\n"
        results.append(answer.result)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(run, number)
                await wait_all_tasks_blocked(0.0001)

    assert results == [str(number) for number in range(10)]


async def test_the_line_of_runs_is_bounded(host_tier: Tier, state_dir: str) -> None:
    """Too many waiting are refused; too long a wait is told."""
    changes = {"waiting_runs": 1, "queue_seconds": 0.2}
    async with open_sessions(host_tier, state_dir, **changes) as (sessions, pool):
        with trio.fail_after(20):
            # The first worker may take longer than that to start.
            while not pool.statistics().ready:  # noqa: ASYNC110
                await trio.lowlevel.checkpoint()
            await sessions.create("s", SessionOptions())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sessions.run, "s", LOOP)
                await wait_all_tasks_blocked()

                async def wait() -> None:
                    with pytest.raises(QueueTimeoutError):
                        await sessions.run("s", RunRequest(code="1"))
                    nursery.cancel_scope.cancel()

                nursery.start_soon(wait)
                await wait_all_tasks_blocked()
                with pytest.raises(OverloadedError):
                    await sessions.run("s", RunRequest(code="1"))


async def test_a_cancelled_run_frees_the_session_and_keeps_its_state(
    sessions: Sessions, session: str
) -> None:
    """A client that goes away interrupts its run only."""
    with trio.fail_after(20):
        await sessions.run("s", RunRequest(code="x = 5"))
        started = trio.Event()
        request = RunRequest(code="print('in')\nwhile True: pass")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sessions.run, "s", request, lambda *_: started.set())
            await started.wait()
            nursery.cancel_scope.cancel()
        answer = await sessions.run("s", RunRequest(code="x"))

    assert answer.result == "5"


@pytest.mark.slow
async def test_a_cancelled_run_that_resists_is_killed(
    sessions: Sessions, session: str
) -> None:
    """Code that swallows the interrupt loses its worker, not the session.

    Nobody was there to be told that the state is gone, so the next run is.
    """
    with trio.fail_after(20):
        started = trio.Event()
        code = (
            "import signal, time\n"
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "print('in')\n"
            "time.sleep(60)"
        )
        request = RunRequest(code=code)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sessions.run, "s", request, lambda *_: started.set())
            await started.wait()
            pid = worker_pid(sessions)
            nursery.cancel_scope.cancel()
        assert not psutil.pid_exists(pid)
        with pytest.raises(WorkerLostError):
            await sessions.run("s", RunRequest(code="1"))
        answer = await sessions.run("s", RunRequest(code="1"))

    assert answer.result == "1"


async def test_a_close_during_a_run_ends_both(sessions: Sessions, session: str) -> None:
    """The run's asker learns that the session was closed."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                with pytest.raises(SessionClosedError):
                    await sessions.run("s", LOOP)

            nursery.start_soon(run)
            nursery.start_soon(run)
            await wait_all_tasks_blocked()
            assert await sessions.close("s") == "closed"


async def test_a_worker_killed_from_outside_is_told_once(
    sessions: Sessions, session: str
) -> None:
    """Lost state is never silent, and the session goes on afterwards."""
    with trio.fail_after(20):
        psutil.Process(worker_pid(sessions)).kill()
        worker = sessions.find("s")._worker
        assert worker is not None
        await worker.gone.wait()
        with pytest.raises(WorkerLostError):
            await sessions.run("s", RunRequest(code="1"))
        answer = await sessions.run("s", RunRequest(code="2"))

    assert answer.result == "2"


async def test_an_unused_session_expires(host_tier: Tier, state_dir: str) -> None:
    """Its worker is killed, and its id answers as closed."""
    async with open_sessions(host_tier, state_dir, idle_seconds=0.2) as (sessions, _):
        with trio.fail_after(20):
            await sessions.create("s", SessionOptions())
            pid = worker_pid(sessions)
            await sessions.find("s").closed.wait()

        assert not psutil.pid_exists(pid)
        with pytest.raises(SessionClosedError, match="expired"):
            sessions.get("s")


async def test_a_run_holds_off_the_idle_end_but_not_the_lifetime(
    host_tier: Tier, state_dir: str
) -> None:
    """A session in use does not expire as idle; its age counts all the same."""
    async with open_sessions(host_tier, state_dir) as (sessions, _):
        with trio.fail_after(20):
            options = SessionOptions(idle_seconds=0.2, lifetime_seconds=1.0)
            await sessions.create("s", options)
            with pytest.raises(SessionClosedError, match="expired"):
                await sessions.run("s", LOOP)


async def test_a_stateless_run_leaves_no_session(sessions: Sessions) -> None:
    """Files are there, the worker is gone afterwards."""
    with trio.fail_after(20):
        answer = await sessions.run_once(
            SessionOptions(seed=1),
            RunRequest(code="print(open('data/a.txt').read())"),
            {"data/a.txt": "text ü"},
        )

    assert (answer.status, answer.stdout) == (RunStatus.OK, "text ü\n")
    assert sessions.list() == []


async def test_a_drain_lets_runs_finish_and_ends_the_rest_as_retryable(
    sessions: Sessions, session: str
) -> None:
    """No admission, a bounded wait, and an error that says to try again."""
    outcomes: list[RunResult | str] = []

    async def run(code: str, session_id: str) -> None:
        try:
            outcomes.append(await sessions.run(session_id, RunRequest(code=code)))
        except DrainingError:
            outcomes.append("retry")

    with trio.fail_after(20):
        await sessions.create("t", SessionOptions())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, "import time; time.sleep(0.2)", "s")
            nursery.start_soon(run, "while True: pass", "t")
            await wait_all_tasks_blocked()
            await sessions.drain(1.0)
        with pytest.raises(DrainingError):
            await sessions.create("u", SessionOptions())

    assert isinstance(outcomes[0], RunResult)
    assert outcomes[1] == "retry"


async def test_too_many_sessions_are_refused(host_tier: Tier, state_dir: str) -> None:
    """The configured number is a bound, and a close makes room."""
    async with open_sessions(host_tier, state_dir, sessions=1) as (sessions, _):
        with trio.fail_after(20):
            await sessions.create("a", SessionOptions())
            with pytest.raises(OverloadedError):
                await sessions.create("b", SessionOptions())
            await sessions.close("a")
            await sessions.create("b", SessionOptions())


async def cancel_at(step: int, work: Callable[[], Awaitable[object]]) -> bool:
    """Cancel `work` at its step-th scheduling; whether it ran to its end."""

    class Counter(trio.abc.Instrument):
        def __init__(self) -> None:
            self.task: trio.lowlevel.Task | None = None
            self.count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            if task is self.task:
                self.count += 1
                if self.count == step:
                    scope.cancel()

    counter = Counter()
    with trio.CancelScope() as scope:
        counter.task = trio.lowlevel.current_task()
        trio.lowlevel.add_instrument(counter)
        try:
            await work()
        finally:
            trio.lowlevel.remove_instrument(counter)
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("what", ["create", "run", "interrupted run", "close", "once"])
async def test_cancelling_at_any_await_leaves_everything_whole(
    sessions: Sessions, what: str
) -> None:
    """Wherever the asker is cancelled, the next one finds the service intact."""
    for step in range(1, 40):
        name = f"s{step}"
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "create": partial(sessions.create, name, SessionOptions()),
            "run": partial(sessions.run, name, RunRequest(code="print(1)")),
            "interrupted run": partial(
                sessions.run,
                name,
                RunRequest(code="while 1: pass", deadline_seconds=0.01),
            ),
            "close": partial(sessions.close, name),
            "once": partial(
                sessions.run_once, SessionOptions(), RunRequest(code="1"), {"a": "b"}
            ),
        }
        with trio.fail_after(20):
            if what not in ("create", "once"):
                await sessions.create(name, SessionOptions())
            finished = await cancel_at(step, works[what])
            if what != "close":
                await sessions.create(name, SessionOptions())
                answer = await sessions.run(name, RunRequest(code="6 * 7"))
                assert answer.result == "42"
            await sessions.close(name)
        if finished:
            break
    else:
        pytest.fail("never ran to its end")

    assert sessions.list() == []
