"""Who a process is and what it may gain: user ids, capabilities, no_new_privs."""

import os
import struct
from contextlib import suppress
from pathlib import Path

from qedtrio.sandbox.libc import checked

__all__ = [
    "become_subreaper",
    "become_user",
    "die_with_parent",
    "drop_capabilities",
    "forbid_new_privileges",
    "offer_to_oom_killer",
]

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

CAPABILITY_VERSION_3 = 0x20080522  # linux/capability.h
SIGKILL = 9

OOM_SCORE = 500
"""Half of all memory on top of what a process uses; children inherit it."""


def forbid_new_privileges() -> None:
    """Make setuid binaries and file capabilities mean nothing from here on."""
    checked("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities() -> None:
    """Empty every capability set, the bounding set included."""
    for capability in range(64):
        try:
            checked("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError:  # past the last capability of this kernel, or not ours to drop
            break
    checked("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    checked("capset", header, bytes(24))


def become_user(uid: int) -> None:
    """Give up root for good: user, group and supplementary groups."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # The kernel hides the /proc files of a process that changed its user,
    # uid_map among them, which we still have to write.
    checked("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)


def die_with_parent(number: int = SIGKILL) -> None:
    """Get a signal when the parent *thread* ends; for single-threaded parents only."""
    checked("prctl", PR_SET_PDEATHSIG, number, 0, 0, 0)


def offer_to_oom_killer() -> None:
    """Die before the daemon when the host runs out of memory.

    Source: proc_pid_oom_score_adj(5).
    """
    with suppress(OSError):  # a masked /proc
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")


def become_subreaper() -> None:
    """Adopt descendants whose parents die, instead of the host's init."""
    checked("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
