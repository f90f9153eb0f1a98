"""What a fork server must not hold, and its workers must not share."""

import socket
import sys
from dataclasses import replace

import psutil
import pytest
import trio

from qedtrio.errors import WorkerStartError
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.child.protocol import ProtocolError
from qedtrio.workers.control import Control
from qedtrio.workers.fork import ForkServer
from qedtrio.workers.pool import PoolState
from tests.workers.conftest import open_pool, plain_profile
from tests.workers.test_recycling import launchers, lease, value

SECRET = "correct-horse-battery-staple"

DRAWS = (
    "import random, numpy.random, sympy.core.random\n"
    "random.random(), numpy.random.rand(), sympy.core.random.random()"
)


async def test_nothing_of_the_daemon_is_in_a_fork_server(
    host_tier: Tier, state_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither environment nor arguments: it is a program of its own."""
    monkeypatch.setenv("QEDTRIO_TEST_TOKEN", SECRET)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setattr(sys, "argv", [*sys.argv, SECRET])
    async with open_pool(plain_profile(host_tier), state_dir) as pool:
        with trio.fail_after(20):
            worker = await lease(pool)
            (launcher,) = launchers()
            seen = [launcher, *launcher.children(recursive=True)]
            texts = []
            for process in seen:
                try:
                    texts.append(f"{process.cmdline()} {process.environ()}")
                except psutil.Error:  # namespaces may hide it from a plain user
                    continue

            assert len(texts) >= 1
            assert not [text for text in texts if SECRET in text]
            assert not [text for text in texts if "PYTHONHASHSEED" in text]
            environment = await value(worker, "__import__('os').environ")
            assert SECRET not in environment


@pytest.mark.slow
async def test_workers_of_one_image_draw_apart_unless_seeded(
    host_tier: Tier, state_dir: str
) -> None:
    """Random, numpy and sympy: fresh by default, the same for the same seed."""
    profile = replace(
        plain_profile(host_tier), preload=("numpy.random", "sympy.core.random")
    )
    async with open_pool(profile, state_dir, ready=0) as pool:
        with trio.fail_after(60):
            draws = []
            for seed in (None, None, 7, 7):
                worker = await lease(pool, seed)
                text = await value(worker, DRAWS)
                draws.append([part.strip("()") for part in text.split(",")])
                await worker.kill()

    assert all(len(draw) == 3 for draw in draws)
    for fresh, other in zip(draws[0], draws[1], strict=True):
        assert fresh != other
    assert draws[2] == draws[3]


async def test_a_preload_with_threads_is_refused_with_the_remedy(
    state_dir: str,
) -> None:
    """The message names what to change for it."""
    profile = replace(plain_profile(Tier.C), preload=("tests.workers.starts_a_thread",))
    async with open_pool(profile, state_dir) as pool:
        assert "2 threads" in pool.failure
        assert 'engine = "exec"' in pool.failure
        assert "[pools.plain]" in pool.failure


async def test_a_packet_that_is_no_request_costs_nobody(
    host_tier: Tier, state_dir: str
) -> None:
    """The fork server passes over it and goes on."""
    async with open_pool(plain_profile(host_tier), state_dir, ready=0) as pool:
        with trio.fail_after(20):
            held = await lease(pool)
            current = pool._succession.current  # no other way in
            assert current is not None
            assert isinstance(current.engine, ForkServer)
            control = current.engine._control
            assert control is not None
            await control.send({"op": "spawn"})
            await control.send({"op": "kill"})
            await control.send({"nonsense": 1})
            await lease(pool)

            assert await value(held, "1 + 1") == "2"
            assert pool.statistics().restarts == 0


async def test_a_fork_server_that_sends_junk_is_ended_alone(state_dir: str) -> None:
    """The pool fails by name and backs off; the daemon lives."""
    profile = replace(plain_profile(Tier.C), preload=("tests.workers.sends_junk",))
    async with open_pool(profile, state_dir) as pool:
        assert pool.state is PoolState.BACKOFF
        assert "sent what is no message" in pool.failure
        with pytest.raises(WorkerStartError, match="sent what is no message"):
            await pool.lease(1)


async def test_a_packet_that_is_no_message_leaves_no_descriptor() -> None:
    """What came beside it is closed; the next packet is read as usual."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control = Control(ours)
    with theirs:
        for junk in (b"\xff", b"[]", b"[" * 5000):
            socket.send_fds(theirs, [junk], [theirs.fileno()])
            with pytest.raises(ProtocolError):
                await control.receive()
        theirs.send(b'{"op": "ready"}')
        assert await control.receive() == ({"op": "ready"}, [])
    assert await control.receive() is None
    control.close()
    assert await control.receive() is None
