"""Seccomp: which system calls a process may make (seccomp(2), classic BPF).

The filter is compiled once in the fork server, where it costs nothing per
worker, and installed in each worker after everything else is set up.
"""

import ctypes
import errno
import struct
from collections.abc import Iterable

from qedtrio.sandbox.libc import AUDIT_ARCH, IS_X86, NUMBERS, checked
from qedtrio.sandbox.namespaces import DESCRIPTORS

__all__ = ["compile_filter", "install_filter"]

DENIED = (
    "accept", "accept4", "acct", "add_key", "adjtimex", "bind", "bpf", "chroot",
    "clock_adjtime", "clock_settime", "connect", "delete_module", "fanotify_init",
    "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module",
    "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl", "kcmp",
    "kexec_file_load", "kexec_load", "keyctl", "listen", "listmount", "listns",
    "lookup_dcookie", "lsm_set_self_attr", "memfd_secret", "modify_ldt", "mount", "mount_setattr", "move_mount",
    "name_to_handle_at", "open_by_handle_at", "open_tree", "open_tree_attr",
    "perf_event_open", "personality", "pidfd_getfd", "pidfd_send_signal",
    "pivot_root", "process_madvise", "process_mrelease", "process_vm_readv",
    "process_vm_writev", "ptrace", "quotactl", "quotactl_fd", "reboot", "request_key",
    "setdomainname", "sethostname", "setns", "settimeofday", "statmount", "swapoff",
    "swapon", "syslog", "umount2", "uselib", "userfaultfd", "vhangup",
)  # fmt: skip
"""Answered with EPERM: nothing a computation needs, much that an escape does."""

UNCOUNTED = (
    "mq_open", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget",
    "semop", "semtimedop", "shmat", "shmctl", "shmget",
)  # fmt: skip
"""Memory that is nobody's: no limit of a process counts it, it outlives its maker,
and where the IPC namespace is the host's all sessions share it. EPERM as well; so is
memfd_create, which is not missed by libraries that are told of ENOSYS."""

SHARED_DENIED = (
    "chown", "fchown", "fchownat", "fremovexattr", "fsetxattr", "inotify_add_watch",
    "lchown", "lremovexattr", "lsetxattr", "migrate_pages", "move_pages",
    "removexattr", "removexattrat", "setxattr", "setxattrat",
)  # fmt: skip
"""Denied too where the worker shares the host's processes: what Landlock does not
see of files of the same user."""

SHARED_PRETENDED = (
    "chmod", "fchmod", "fchmodat", "fchmodat2", "futimesat", "sync", "syncfs", "utime",
    "utimensat", "utimes",
)  # fmt: skip
"""There they do nothing: the like of these, but libraries call them as a matter of
course, as when they copy a file."""

# linux/seccomp.h, linux/bpf_common.h
SET_MODE_FILTER, FLAG_TSYNC = 1, 1
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
AND = 0x54
OFFSET_NUMBER, OFFSET_ARCH = 0, 4
FIRST, SECOND = 16, 24
"""Offsets of the low halves of the first two arguments."""

X32_BIT = 0x40000000
CLONE_DENIED = 0x7E028080
"""Every CLONE_NEW* of linux/sched.h, and CLONE_PARENT: a child that is no child."""

SOCK_TYPE_MASK, SOCK_STREAM, SOCK_SEQPACKET, AF_UNIX = 0xF, 1, 5, 1

BAD_FCNTLS = (8, 10, 15, 1024)
"""fcntl's F_SETOWN, F_SETSIG, F_SETOWN_EX: a signal of choice to any process of
the same user, past every filter on kill; and F_SETLEASE, which makes whoever opens
the file wait."""
BAD_IOCTLS = (0x8901, 0x8902, 0x5412, 0x541C)
"""FIOSETOWN and SIOCSPGRP, which do the same; TIOCSTI and TIOCLINUX, which type."""

OF_PROCESSES = (
    "prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler",
)  # fmt: skip
"""Work on any process of the same user, whose id is the first argument: a CPU
limit of one second kills a daemon as surely as a signal."""
SIGNALS = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")

SELF = 0x5E1F5E1F
"""Stands for the process id in a compiled filter."""

Instruction = tuple[int, int, int, int]


def compile_filter(
    *, pretend: Iterable[str] = (), shared: bool = False, signal_self: bool = False
) -> bytes:
    """Compile the filter of a worker.

    Args:
        pretend: Calls that return 0 and do nothing: tier B keeps a worker's
            descendants in its process group this way.
        shared: Whether the worker shares the host's PID and IPC namespaces.
        signal_self: Whether signals may go to the own process only, where
            neither a namespace nor Landlock keeps them in. The process id is
            compiled in by `install_filter`.

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
    program += _answer((*DENIED, *UNCOUNTED), errno.EPERM)
    program += _answer(["memfd_create"], errno.ENOSYS)
    program += _answer(pretend, 0)
    # Its flags are behind a pointer; ENOSYS makes the C library use clone.
    program += _answer(["clone3"], errno.ENOSYS)
    program += _answer(["socket"], errno.EAFNOSUPPORT)
    program += _socketpair()
    program += _when("clone", FIRST, [(JUMP_SET, CLONE_DENIED)], allow=False)
    # A thread may leave its descriptors to the others.
    program += _only("unshare", FIRST, [DESCRIPTORS])
    program += _when("fcntl", SECOND, _equal(BAD_FCNTLS), allow=False)
    program += _when("ioctl", SECOND, _equal(BAD_IOCTLS), allow=False)
    if shared:
        program += _answer(SHARED_DENIED, errno.EPERM)
        program += _answer(SHARED_PRETENDED, 0)
        for name in OF_PROCESSES:
            program += _only(name, FIRST, [0, SELF])
        for name in ("setpriority", "ioprio_set"):  # their first says what it is of
            program += _only(name, SECOND, [0, SELF])
    if signal_self:
        for name in SIGNALS:
            program += _only(name, FIRST, [0, SELF])
        program += _answer(["tkill"], errno.EPERM)
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in program)


def _answer(names: Iterable[str], error: int) -> list[Instruction]:
    lines: list[Instruction] = []
    for name in names:
        if name in NUMBERS:
            lines += [
                (JUMP_EQUAL, 0, 1, NUMBERS[name]),
                (RETURN, 0, 0, ERRNO | error),
            ]
    return lines


def _equal(values: Iterable[int]) -> list[tuple[int, int]]:
    return [(JUMP_EQUAL, value) for value in values]


def _only(name: str, argument: int, values: Iterable[int]) -> list[Instruction]:
    """Allow a call with one of these values, and refuse it with any other."""
    return _when(name, argument, _equal(values), allow=True)


def _when(
    name: str, argument: int, tests: list[tuple[int, int]], *, allow: bool
) -> list[Instruction]:
    """Allow, or refuse, a call whose argument passes one of the tests."""
    passed, failed = (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERRNO | errno.EPERM)
    if not allow:
        passed, failed = failed, passed
    count = len(tests)
    return [
        (JUMP_EQUAL, 0, count + 3, NUMBERS[name]),
        (LOAD, 0, 0, argument),
        *((test, count - n, 0, value) for n, (test, value) in enumerate(tests)),
        failed,
        passed,
    ]


def _socketpair() -> list[Instruction]:
    """Allow connected pairs of unix sockets, which can reach nobody else.

    A datagram pair could: each sendto(2) may name another address.
    """
    return [
        (JUMP_EQUAL, 0, 8, NUMBERS["socketpair"]),
        (LOAD, 0, 0, FIRST),
        (JUMP_EQUAL, 0, 4, AF_UNIX),
        (LOAD, 0, 0, SECOND),
        (AND, 0, 0, SOCK_TYPE_MASK),
        (JUMP_EQUAL, 2, 0, SOCK_STREAM),
        (JUMP_EQUAL, 1, 0, SOCK_SEQPACKET),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
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
