"""Threads that outlive the run that started them.

They share the interpreter with later runs, on purpose: a session may keep an
executor. They do not share its output. Whatever a thread writes goes through
the process's descriptors, so the main thread leaves it the descriptor table of
its own run, in which 1 and 2 are /dev/null by then, and takes a fresh copy.
"""

import os
import sys

from qedtrio.sandbox.namespaces import leave_descriptor_table

__all__ = ["leave_descriptors"]


def leave_descriptors() -> None:
    """Part from the descriptors of threads that are still running, if any.

    To be called between two runs, before the pipes of the next one arrive.

    Raises:
        OSError: The sandbox forbids it.
    """
    if _has_other_threads():
        leave_descriptor_table()


def _has_other_threads() -> bool:
    """Whether the kernel knows another thread than this one, C code's included."""
    try:
        # Two more links than threads (proc_task_getattr in fs/proc/base.c):
        # much cheaper than listing the folder.
        return os.stat("/proc/self/task").st_nlink > 3  # noqa: PTH116
    except OSError:  # a masked /proc
        return len(sys._current_frames()) > 1  # noqa: SLF001  # the only list of all
