"""Fewer, larger pages for what every worker shares.

A fork copies a page-table entry for each page of the preload, and the exit
drops it again; with huge pages there are up to 512 times fewer. A worker that
writes to one gets small copies of what it touches, as before.
"""

import ctypes
import os
import re
from pathlib import Path

__all__ = ["collapse_pages"]

MADV_COLLAPSE = 25  # linux/mman.h, kernel 6.1; older ones refuse it, harmlessly
HUGE = 2 << 20

# Private, writable, and either anonymous or the heap (proc_pid_maps(5)).
_MAPPING = re.compile(r"^(\w+)-(\w+) .w.p \S+ \S+ 0 *(\[heap\])?$", re.MULTILINE)


def collapse_pages() -> None:
    """Turn this process's anonymous memory into huge pages, where it fills them."""
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if os.sysconf("SC_PAGESIZE") != 4096:  # other sizes have other huge pages
        return
    for first, last, _ in _MAPPING.findall(Path("/proc/self/maps").read_text()):
        start = -(-int(first, 16) // HUGE) * HUGE
        for address in range(start, int(last, 16) - HUGE + 1, HUGE):
            libc.madvise(address, HUGE, MADV_COLLAPSE)
