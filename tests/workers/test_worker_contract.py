"""What a worker promises, the same for every tier and engine."""

import os
import signal

import psutil
import pytest
import trio

from qedtrio.config import Limits
from qedtrio.errors import BrokenWorkerError, QueueTimeoutError, WorkerLostError
from qedtrio.workers.child.protocol import Message
from qedtrio.workers.output import Capture
from qedtrio.workers.pool import Pool
from qedtrio.workers.probe import birth_limits
from qedtrio.workers.worker import Worker

LEASE: Message = {"op": "lease", "limits": birth_limits(Limits()), "seed": 1}


async def lease(pool: Pool) -> Worker:
    """Take a worker that is ready to run."""
    worker = await pool.lease(20)
    await worker.request(LEASE)
    return worker


def dispatch(worker: Worker, code: str, stdin: str = "") -> None:
    """Send code with pipes of its own, which are the caller's to close."""
    writers = worker.open_pipes()
    worker.send_nowait({"op": "run", "code": code, "stdin": stdin}, writers)
    for writer in writers:
        os.close(writer)


async def run(worker: Worker, code: str, stdin: str = "") -> tuple[Message, str, str]:
    """Run code and return the reply, stdout and stderr."""
    captures = (Capture(100_000), Capture(100_000))
    dispatch(worker, code, stdin)
    try:
        reply = await worker.receive(captures)
    finally:
        worker.close_pipes(captures)
    return reply, captures[0].text(), captures[1].text()


async def test_a_run_answers_with_its_result_and_output(pool: Pool) -> None:
    """State persists between runs; each stream arrives apart."""
    with trio.fail_after(20):
        worker = await lease(pool)
        await run(
            worker, "import sys; x = 41; print('out'); print('err', file=sys.stderr)"
        )
        reply, out, err = await run(worker, "print('again')\nx + 1")

    assert (reply["status"], reply["result"]) == ("ok", "42")
    assert (out, err) == ("again\n", "")


async def test_output_of_c_code_and_children_is_captured(pool: Pool) -> None:
    """Capture is at the level of descriptors, not of Python objects."""
    with trio.fail_after(20):
        worker = await lease(pool)
        _, out, _ = await run(
            worker,
            "import os, subprocess, sys\n"
            "os.write(1, b'raw ')\n"
            "subprocess.run([sys.executable, '-c', 'print(7)'], check=True)",
        )

    assert out == "raw 7\n"


async def test_an_interrupt_keeps_the_state(pool: Pool) -> None:
    """SIGINT reaches the code as KeyboardInterrupt and nothing else."""
    with trio.fail_after(20):
        worker = await lease(pool)
        dispatch(worker, "x = 5\nprint('in', flush=True)\nwhile True: pass")
        seen = trio.Event()
        async with trio.open_nursery() as nursery:

            async def interrupt() -> None:
                await seen.wait()
                worker.interrupt()

            nursery.start_soon(interrupt)
            captures = (Capture(100), Capture(100))
            reply = await worker.receive(captures, lambda *_: seen.set())
        worker.close_pipes()
        after, _, _ = await run(worker, "x")

    assert reply["status"] == "interrupted"
    assert after["result"] == "5"


async def test_a_late_interrupt_hits_nothing(pool: Pool) -> None:
    """Between runs a SIGINT is ignored, and the next run is not its victim."""
    with trio.fail_after(20):
        worker = await lease(pool)
        for _ in range(50):
            await run(worker, "1")
            worker.interrupt()
        reply, _, _ = await run(worker, "2")

    assert reply["result"] == "2"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os; os._exit(3)", 3 << 8),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL),
        ("import os; os.abort()", signal.SIGABRT),
        ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
    ],
    ids=["exit", "kill", "abort", "segfault"],
)
async def test_a_death_by_its_own_code_tells_its_status(
    pool: Pool, code: str, expected: int
) -> None:
    """The fork server reports the wait status, and the worker is buried."""
    with trio.fail_after(20):
        worker = await lease(pool)
        with pytest.raises(WorkerLostError):
            await run(worker, code)
        await worker.buried.wait()

    assert worker.exit_status is not None
    assert worker.exit_status & ~0x80 == expected  # less the core-dump bit


async def test_a_buried_worker_is_lost_to_every_call(pool: Pool) -> None:
    """Its burial may come first; what its run printed is still there to be read."""
    with trio.fail_after(20):
        worker = await lease(pool)
        dispatch(worker, "import os; print('last words', flush=True); os._exit(0)")
        await worker.buried.wait()
        for call in (worker.receive, worker.receive_soon):
            with pytest.raises(WorkerLostError):
                await call()
        with pytest.raises(WorkerLostError):
            worker.send_nowait({"op": "ping"})
        captures = (Capture(100), Capture(100))
        worker.close_pipes(captures)

    assert captures[0].text() == "last words\n"


async def test_garbage_on_the_channel_is_named(pool: Pool) -> None:
    """Code that finds the control socket breaks its own worker only."""
    with trio.fail_after(20):
        worker = await lease(pool)
        with pytest.raises(BrokenWorkerError):
            await run(worker, "import os; os.write(3, b'garbage, no message')")
        await worker.kill()
        other = await lease(pool)
        reply, _, _ = await run(other, "1 + 1")

    assert reply["result"] == "2"


DOUBLE_FORK = """
import os, signal, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        while True: time.sleep(1)
    os._exit(0)
"""

STOPPED_CHILD = """
import os, signal
if os.fork() == 0:
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize(
    "code", [DOUBLE_FORK, STOPPED_CHILD], ids=["double", "stopped"]
)
async def test_a_kill_leaves_no_descendant(pool: Pool, code: str) -> None:
    """Whatever the code started is dead when `kill` returns."""
    me = psutil.Process()
    with trio.fail_after(20):
        worker = await lease(pool)
        await run(worker, code)
        session = psutil.Process(worker.pid)
        before = {p.pid for p in me.children(recursive=True)}
        await worker.kill()
        after = {p.pid for p in me.children(recursive=True)}

    assert session.pid in before
    assert session.pid not in after
    assert not psutil.pid_exists(worker.pid)


async def test_kill_is_idempotent_and_shared(pool: Pool) -> None:
    """Several tasks may kill the same worker; all return after its death."""
    with trio.fail_after(20):
        worker = await lease(pool)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(worker.kill)
        await worker.kill()

    assert worker.buried.is_set()


async def test_a_cancelled_receive_loses_nothing(pool: Pool) -> None:
    """The reply is read by a later call."""
    with trio.fail_after(20):
        worker = await lease(pool)
        for _ in range(20):
            worker.send_nowait({"op": "ping"})
            with trio.CancelScope() as scope:
                scope.cancel()
                await worker.receive()
            reply = await worker.receive()
            assert reply == {"op": "done"}


async def test_a_cancelled_lease_leaks_no_worker(pool: Pool) -> None:
    """Whenever a lease is cancelled, the workers there are stay the same."""
    with trio.fail_after(20):
        workers = []
        for _ in range(3):
            workers.append(await pool.lease(20))
            with trio.CancelScope() as scope:
                scope.cancel()
                await pool.lease(20)
        for worker in workers:
            await worker.kill()
        worker = await lease(pool)
        reply, _, _ = await run(worker, "3")

    assert reply["result"] == "3"
    assert pool.statistics().queue == 0


async def test_a_worker_is_born_with_a_clean_world(pool: Pool) -> None:
    """No inherited descriptor, no variable of the daemon, an empty folder."""
    os.environ["QEDTRIO_SECRET_OF_TEST"] = "1"
    try:
        with trio.fail_after(20):
            worker = await lease(pool)
            reply, _, _ = await run(
                worker,
                "import os\n"
                "fds = sorted(int(f) for f in os.listdir('/proc/self/fd'))\n"
                "fds, [k for k in os.environ if 'QEDTRIO' in k], os.listdir('.')",
            )
    finally:
        del os.environ["QEDTRIO_SECRET_OF_TEST"]

    # 0-2 streams, 3 control, 4 /dev/null, 5 the listing itself
    assert reply["result"] == "([0, 1, 2, 3, 4, 5], [], [])"


async def test_a_worker_is_first_to_go_when_memory_is_short(pool: Pool) -> None:
    """The kernel shall take what a session uses, and never the daemon."""
    with trio.fail_after(20):
        worker = await pool.lease(20)
        score = await trio.Path(f"/proc/{worker.pid}/oom_score_adj").read_text()
        await worker.kill()

    assert int(score) >= 500


async def test_a_full_pool_times_out_in_line(kind: object, state_dir: str) -> None:
    """Beyond `max_workers` a lease waits, and says so when it gives up."""
    from qedtrio.sandbox.tiers import Tier
    from tests.workers.conftest import plain_profile

    assert isinstance(kind, tuple)
    tier, engine = kind
    assert isinstance(tier, Tier)
    pool = Pool(
        plain_profile(tier, engine), ready_workers=0, max_workers=1, state_dir=state_dir
    )
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.run)
            worker = await pool.lease(20)
            with pytest.raises(QueueTimeoutError):
                await pool.lease(0.05)
            async with trio.open_nursery() as waiters:

                async def wait_for_one() -> None:
                    await (await pool.lease(20)).kill()

                waiters.start_soon(wait_for_one)
                await trio.testing.wait_all_tasks_blocked()
                await worker.kill()
            nursery.cancel_scope.cancel()
