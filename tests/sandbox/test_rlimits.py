"""Limits that several workers share."""

from qedtrio.sandbox.rlimits import MOST_SHARED_PROCESSES, shared_limits


def test_neighbours_of_one_user_have_room() -> None:
    """RLIMIT_NPROC counts a user's processes, so it must hold for all workers."""
    limits = {"processes": 64, "memory_bytes": 1}

    assert shared_limits(limits, 10) == {"processes": 640, "memory_bytes": 1}
    assert shared_limits(limits, 10_000)["processes"] == MOST_SHARED_PROCESSES
