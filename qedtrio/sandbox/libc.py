"""The C library by ctypes, and the system-call numbers of both architectures.

Only what the sandbox calls or filters is listed. Sources: Linux
`arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`.
"""

import ctypes
import os
import platform

__all__ = ["AUDIT_ARCH", "IS_X86", "NUMBERS", "call", "checked"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

IS_X86 = platform.machine() == "x86_64"

AUDIT_ARCH = 0xC000003E if IS_X86 else 0xC00000B7
"""What seccomp sees as the calling architecture (`linux/audit.h`)."""

# name: (x86_64, aarch64); None where the architecture has no such call.
_TABLE: dict[str, tuple[int | None, int | None]] = {
    "accept": (43, 202),
    "accept4": (288, 242),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bind": (49, 200),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "inotify_add_watch": (254, 27),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "lchown": (94, None),
    "listen": (50, 201),
    "listmount": (458, 458),
    "listns": (470, 470),
    "lookup_dcookie": (212, 18),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "lsm_set_self_attr": (460, 460),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpgid": (109, 154),
    "setpriority": (141, 140),
    "setsid": (112, 157),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vhangup": (153, 58),
}

NUMBERS: dict[str, int] = {
    name: number
    for name, pair in _TABLE.items()
    if (number := pair[0] if IS_X86 else pair[1]) is not None
}
"""System-call name → number on this machine."""


def call(name: str, *args: object) -> int:
    """Make one system call; return its result, -1 on failure."""
    result: int = _libc.syscall(ctypes.c_long(NUMBERS[name]), *args)
    return result


def checked(name: str, *args: object) -> int:
    """Make one system call, or one libc function such as `prctl`.

    Raises:
        OSError: With the name of the call in it.
    """
    result = call(name, *args) if name in NUMBERS else getattr(_libc, name)(*args)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result
