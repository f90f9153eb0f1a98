"""Seccomp: which system calls a process may make (seccomp(2), classic BPF).

The filter is compiled once in the fork server, where it costs nothing per
worker, and installed in each worker after everything else is set up.
"""

import ctypes
import errno
import struct
from collections.abc import Iterable

from qedtrio.sandbox.libc import AUDIT_ARCH, IS_X86, NUMBERS, checked

__all__ = ["DENIED", "compile_filter", "install_filter"]

DENIED = (
    "acct", "add_key", "bpf", "chroot", "delete_module", "finit_module", "fsconfig",
    "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter", "io_uring_register",
    "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load",
    "keyctl", "lookup_dcookie", "memfd_secret", "mount", "mount_setattr", "move_mount",
    "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open",
    "personality", "pidfd_getfd", "pidfd_send_signal", "pivot_root",
    "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace", "quotactl",
    "reboot", "request_key", "sethostname", "setns", "swapoff", "swapon", "syslog",
    "umount2", "userfaultfd", "vhangup",
)  # fmt: skip
"""Answered with EPERM: nothing a computation needs, much that an escape does."""

# linux/seccomp.h, linux/bpf_common.h
SET_MODE_FILTER, FLAG_TSYNC = 1, 1
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
OFFSET_NUMBER, OFFSET_ARCH, OFFSET_FIRST_ARGUMENT = 0, 4, 16

X32_BIT = 0x40000000
CLONE_FILES = 0x400
NAMESPACE_FLAGS = 0x7E020080  # every CLONE_NEW* of linux/sched.h

Instruction = tuple[int, int, int, int]


def compile_filter(*, pretend: Iterable[str] = (), signal_self: bool = False) -> bytes:
    """Compile the filter of a worker.

    Args:
        pretend: Calls that return 0 and do nothing: tier B keeps a worker's
            descendants in its process group this way.
        signal_self: Whether signals may go to the own process only, for tiers
            without a PID namespace; the process id is compiled in by
            `install_filter`.

    Returns:
        The program, for `install_filter`.
    """
    program: list[Instruction] = [
        (LOAD, 0, 0, OFFSET_ARCH),
        (JUMP_EQUAL, 1, 0, AUDIT_ARCH),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, OFFSET_NUMBER),
    ]
    if IS_X86:  # the x32 numbers would pass every comparison below
        program += [
            (JUMP_GREATER_EQUAL, 0, 1, X32_BIT),
            (RETURN, 0, 0, ERRNO | errno.ENOSYS),
        ]
    program += _answer(DENIED, errno.EPERM)
    program += _answer(pretend, 0)
    # Its flags are behind a pointer; ENOSYS makes the C library use clone.
    program += _answer(["clone3"], errno.ENOSYS)
    program += _answer(["socket"], errno.EAFNOSUPPORT)
    program += [
        (JUMP_EQUAL, 0, 4, NUMBERS["clone"]),
        (LOAD, 0, 0, OFFSET_FIRST_ARGUMENT),
        (JUMP_SET, 0, 1, NAMESPACE_FLAGS),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    program += [  # a thread may leave its descriptors to the others
        (JUMP_EQUAL, 0, 4, NUMBERS["unshare"]),
        (LOAD, 0, 0, OFFSET_FIRST_ARGUMENT),
        (JUMP_EQUAL, 0, 1, CLONE_FILES),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
    ]
    if signal_self:
        for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            program += _only_self(NUMBERS[name])
        program += _answer(["tkill"], errno.EPERM)
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in program)


SELF = 0x5E1F5E1F
"""Stands for the process id in a compiled filter."""


def _answer(names: Iterable[str], error: int) -> list[Instruction]:
    lines: list[Instruction] = []
    for name in names:
        if name in NUMBERS:
            lines += [
                (JUMP_EQUAL, 0, 1, NUMBERS[name]),
                (RETURN, 0, 0, ERRNO | error),
            ]
    return lines


def _only_self(number: int) -> list[Instruction]:
    return [
        (JUMP_EQUAL, 0, 4, number),
        (LOAD, 0, 0, OFFSET_FIRST_ARGUMENT),
        (JUMP_EQUAL, 0, 1, SELF),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
    ]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install_filter(program: bytes, process_id: int) -> None:
    """Install a compiled filter in every thread of this process, for good.

    Needs `forbid_new_privileges` or CAP_SYS_ADMIN first.
    """
    program = program.replace(struct.pack("I", SELF), struct.pack("I", process_id))
    buffer = ctypes.create_string_buffer(program, len(program))
    described = _Program(len(program) // 8, ctypes.addressof(buffer))
    checked("seccomp", SET_MODE_FILTER, FLAG_TSYNC, ctypes.byref(described))
