"""Landlock: which files a process may reach (landlock(7), kernel 5.13 and later)."""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from qedtrio.sandbox.libc import call, checked

__all__ = ["SIGNALS_ABI", "abi_version", "restrict_files"]

# linux/landlock.h
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
NET_BIND_TCP, NET_CONNECT_TCP = 1, 1 << 1
SCOPE_ABSTRACT_UNIX, SCOPE_SIGNAL = 1, 1 << 1

SIGNALS_ABI = 6
"""The first that keeps signals, and abstract unix sockets, in the domain."""

_FIRST_ABI = (1 << 13) - 1  # every right of ABI 1


def abi_version() -> int:
    """Return the kernel's Landlock ABI, 0 where there is none."""
    return max(
        0,
        call(
            "landlock_create_ruleset", None, ctypes.c_size_t(0), CREATE_RULESET_VERSION
        ),
    )


def restrict_files(readable: Iterable[str], writable: Iterable[str]) -> int:
    """Allow these trees and nothing else, with every right of this kernel handled.

    From ABI 4 on TCP is refused too, from ABI 6 on signals and abstract unix
    sockets out of the domain.

    Args:
        readable: Paths to read and execute below.
        writable: Paths to read, write, execute and create below; no devices.

    Returns:
        The ABI that was used.

    Raises:
        OSError: Landlock is missing or refused.
    """
    abi = abi_version()
    if abi < 1:
        raise OSError("landlock: not available in this kernel")
    handled = _file_rights(abi)
    ruleset = _create_ruleset(abi, handled)
    try:
        for path in readable:
            _allow(ruleset, path, (READ_FILE | READ_DIR | EXECUTE) & handled, handled)
        for path in writable:
            _allow(
                ruleset, path, handled & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV), handled
            )
        checked("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
    return abi


def _file_rights(abi: int) -> int:
    rights = _FIRST_ABI
    if abi >= 2:
        rights |= REFER
    if abi >= 3:
        rights |= TRUNCATE
    if abi >= 5:
        rights |= IOCTL_DEV
    return rights


def _create_ruleset(abi: int, handled: int) -> int:
    network = NET_BIND_TCP | NET_CONNECT_TCP if abi >= 4 else 0
    scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL if abi >= SIGNALS_ABI else 0
    # Older kernels refuse a longer structure than they know.
    size = 8 if abi < 4 else 16 if abi < SIGNALS_ABI else 24
    attributes = struct.pack("QQQ", handled, network, scoped)[:size]
    return checked("landlock_create_ruleset", attributes, ctypes.c_size_t(size), 0)


def _allow(ruleset: int, path: str, rights: int, handled: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a tree this host lacks needs no rule
        return
    try:
        if not Path(path).is_dir():
            rights &= (
                EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
            ) & handled
        rule = struct.pack("=Qi", rights, descriptor)
        checked("landlock_add_rule", ruleset, RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
