"""Our own processes stopped or starved: kills hold, and the pool comes back."""

import os
import signal
import sys

import psutil
import pytest
import trio

from qedtrio.errors import ReleaseFailedError, WorkerStartError
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.pool import Pool
from qedtrio.workers.profile import Profile
from qedtrio.workers.worker import Worker
from tests.workers.conftest import open_pool, plain_profile
from tests.workers.test_worker_contract import dispatch

pytestmark = pytest.mark.slow

LEASE = {"op": "lease", "seed": 1}
FORK = """
import os, time
os.fork() or os.fork()
while True:
    try:
        time.sleep(1000)
    except KeyboardInterrupt:
        pass
"""


def fork_server_of(worker: Worker) -> psutil.Process:
    """The fork server that a worker came from."""
    parent = psutil.Process(worker.pid).parent()
    assert parent is not None
    return parent


def launcher_of(worker: Worker) -> psutil.Process:
    """The launcher above it."""
    (found,) = [
        child
        for child in psutil.Process().children()
        if worker.pid in {p.pid for p in child.children(recursive=True)}
    ]
    return found


async def spread(worker: Worker) -> list[int]:
    """Have a worker fork; return descriptors of it and of its children."""
    limits = {"output_bytes": 1000, "result_bytes": 1000}
    await worker.request({**LEASE, "limits": limits})
    dispatch(worker, FORK)
    process = psutil.Process(worker.pid)
    while len(children := process.children(recursive=True)) < 2:  # noqa: ASYNC110  # it tells nobody
        await trio.lowlevel.checkpoint()
    worker.close_pipes()
    return [os.pidfd_open(pid) for pid in (worker.pid, *(c.pid for c in children))]


async def wait_dead(pidfds: list[int]) -> None:
    """Wait until all of these processes have ended."""
    for pidfd in pidfds:
        await trio.lowlevel.wait_readable(pidfd)
        os.close(pidfd)


async def lease_again(pool: Pool) -> Worker:
    """Lease until the pool has recovered."""
    while True:
        try:
            return await pool.lease(20)
        except WorkerStartError:
            await trio.lowlevel.checkpoint()


def impatient(tier: Tier) -> Profile:
    """A profile whose fork server must answer soon."""
    return plain_profile(tier, start_seconds=2.0)


async def stop_fork_server(tier: Tier, state_dir: str) -> None:
    """The death is real at once, told when it can be seen; a new one takes over."""
    async with open_pool(impatient(tier), state_dir, ready=0) as pool:
        with trio.fail_after(40):
            worker = await pool.lease(10)
            pidfds = await spread(worker)
            fork_server_of(worker).send_signal(signal.SIGSTOP)
            with pytest.raises(ReleaseFailedError):
                await worker.kill()
            with trio.fail_after(1):
                await wait_dead(pidfds)
            again = await lease_again(pool)
            await worker.buried.wait()

            assert await again.request({"op": "ping"}) == {"op": "done"}


async def stop_launcher(tier: Tier, state_dir: str) -> None:
    """Leases, kills, and the pool's end go on without it."""
    with trio.fail_after(40):
        async with open_pool(impatient(tier), state_dir, ready=0) as pool:
            worker = await pool.lease(10)
            pidfds = await spread(worker)
            launcher_of(worker).send_signal(signal.SIGSTOP)
            await worker.kill()
            await wait_dead(pidfds)
            left = await spread(await pool.lease(10))
        await wait_dead(left)


async def test_stopped_processes_of_ours_are_in_nobody_s_way(
    host_tier: Tier, state_dir: str
) -> None:
    """All tiers side by side, since all of this is waiting."""
    async with trio.open_nursery() as nursery:
        for tier in Tier:
            if host_tier.reaches(tier):
                nursery.start_soon(stop_fork_server, tier, state_dir)
                nursery.start_soon(stop_launcher, tier, state_dir)


STARVED = """
import os, resource, signal, socket
from qedtrio.sandbox import mounts, namespaces
from qedtrio.workers.child import pool_init

namespaces.unshare_user(namespaces.PID | namespaces.MOUNT)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
init = os.fork()
if init == 0:
    mounts.mount_proc("/proc")
    server = os.fork()
    if server == 0:
        signal.pause()
    ours.close()
    pool_init.serve(theirs, server)
theirs.close()
pool_init.request_namespace(ours)
limits = resource.prlimit(init, resource.RLIMIT_NOFILE)
for number in range(3, 12):
    resource.prlimit(init, resource.RLIMIT_NOFILE, (number, limits[1]))
    try:
        pool_init.request_namespace(ours)
    except OSError as error:
        assert "Too many open files" in str(error), error
        print("refused")
resource.prlimit(init, resource.RLIMIT_NOFILE, limits)
first, namespace = pool_init.request_namespace(ours)
os.kill(init, signal.SIGKILL)
os.waitpid(init, 0)
print("made")
"""


async def test_a_starved_pool_init_fails_one_spawn_not_the_pool(
    host_tier: Tier,
) -> None:
    """It refuses by name while it has no descriptors, and makes one after."""
    if host_tier is not Tier.A:
        pytest.skip("only tier A makes a process for each namespace")
    with trio.fail_after(20):
        done = await trio.run_process(
            [sys.executable, "-c", STARVED], capture_stdout=True
        )
    said = done.stdout.decode().split()

    assert said[-1] == "made"
    assert said.count("refused") >= 3
