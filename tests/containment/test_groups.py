"""A process group outlives its leader, and is reached without its number."""

import os
import select
import subprocess
import sys
from collections.abc import Callable

import pytest

from qedtrio.workers import life

LEAD = """
import os, time
if os.fork() == 0:
    time.sleep(1000)
print(os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1000"), flush=True)
"""


@pytest.mark.parametrize(
    "kill",
    [life.kill_group, life._kill_numbered_group],
    ids=["by descriptor", "on an older kernel"],
)
def test_what_a_dead_leader_left_is_killed(
    kill: Callable[[int, int], None],
) -> None:
    """Its number is not another's while the group lives; asking again is harmless."""
    with subprocess.Popen(
        [sys.executable, "-c", LEAD],
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as leader:
        pidfd = os.pidfd_open(leader.pid)
        assert leader.stdout is not None
        left = os.pidfd_open(int(leader.stdout.readline()))
        assert leader.wait(10) == 0

        kill(pidfd, leader.pid)
        assert select.select([left], [], [], 10)[0] == [left]
        kill(pidfd, leader.pid)
    os.close(pidfd)
    os.close(left)


def test_a_number_given_to_another_is_spared() -> None:
    """A leader that is dead, and a process of its number that is not its own."""
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pidfd = os.pidfd_open(dead.pid)
        dead.wait(10)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        life._kill_numbered_group(pidfd, other.pid)
        assert other.poll() is None
        other.kill()
        assert other.wait(10) == -9
    os.close(pidfd)
