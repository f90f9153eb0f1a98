"""Namespaces: what a process cannot see it cannot touch."""

import os
from pathlib import Path

from qedtrio.sandbox.libc import checked

__all__ = [
    "IPC",
    "MOUNT",
    "NETWORK",
    "PID",
    "USER",
    "UTS",
    "enter",
    "leave_descriptor_table",
    "unshare",
    "unshare_user",
]

# linux/sched.h
MOUNT = 0x00020000
UTS = 0x04000000
IPC = 0x08000000
USER = 0x10000000
PID = 0x20000000
NETWORK = 0x40000000
DESCRIPTORS = 0x00000400


def unshare(flags: int) -> None:
    """Leave the named namespaces for fresh ones; PID takes effect at fork."""
    checked("unshare", flags)


def unshare_user(flags: int = 0) -> None:
    """Enter a fresh user namespace, in which we keep our own uid and gid."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(USER | flags)
    for name, text in (
        ("setgroups", "deny"),  # without it an unprivileged gid_map is refused
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text, encoding="ascii")


def leave_descriptor_table() -> None:
    """Give this thread a table of its own; the others keep what they had.

    Threads started from here on share the new one. Costs nothing when no
    other thread shares the table (unshare(2), CLONE_FILES).
    """
    checked("unshare", DESCRIPTORS)


def enter(descriptor: int, kind: int) -> None:
    """Join the namespace behind `descriptor`; PID takes effect at fork."""
    checked("setns", descriptor, kind)
