"""Huge pages make forks cheap where the kernel has them."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import re
from qedtrio.workers.child.hugepages import collapse_pages
kept = bytearray(b"x" * (32 << 20))
collapse_pages()
text = open("/proc/self/smaps_rollup").read()
print(re.search(r"AnonHugePages: +([0-9]+) kB", text)[1])
assert kept[5] == ord("x")
"""


def test_the_memory_of_a_preload_becomes_huge_pages() -> None:
    """Most of 32 MiB, with its content unharmed; old kernels refuse quietly."""
    done = subprocess.run(  # noqa: TID251  # its own memory is the subject
        [sys.executable, "-c", PROGRAM],
        check=True,
        capture_output=True,
        timeout=30,
    )
    kernel = tuple(int(part) for part in platform.release().split(".")[:2])
    if kernel < (6, 1):
        pytest.skip(f"kernel {platform.release()} has no MADV_COLLAPSE")

    assert int(done.stdout) > 16 << 10
