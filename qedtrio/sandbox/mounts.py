"""A root folder that holds the interpreter, the system's libraries, and no more.

`build_root` makes it once per pool from read-only binds; `mount_private` gives
each worker its own writable folders, which vanish with its mount namespace.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from qedtrio.sandbox.libc import checked

__all__ = [
    "DEVICES",
    "PRIVATE_FOLDERS",
    "bind_proc",
    "build_root",
    "hidden_trees",
    "mount_private",
    "mount_proc",
    "readable_trees",
    "switch_root",
]

# linux/mount.h
RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
REMOUNT, BIND, REC, PRIVATE = 1 << 5, 1 << 12, 1 << 14, 1 << 18
ATTR_RDONLY, ATTR_NOSUID = 1, 2
AT_RECURSIVE = 0x8000
MNT_DETACH = 2

DEVICES = ("null", "zero", "full", "random", "urandom")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/fonts", "/etc/mime.types")
PRIVATE_FOLDERS = ("/session", "/tmp", "/dev/shm")
"""What a worker may write: its working folder, /tmp and shared memory."""


def readable_trees() -> list[str]:
    """List the trees that an interpreter like this one needs to read."""
    package = str(Path(__file__).resolve().parent.parent)
    places = [*SYSTEM, *SYSTEM_FILES, sys.prefix, sys.base_prefix, package]
    places += [entry for entry in sys.path if Path(entry).is_absolute()]
    real = [str(Path(place).resolve()) for place in places if Path(place).exists()]
    return _without_nested(dict.fromkeys(places + real))


def _without_nested(places: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for place in sorted(places):
        path = Path(place)
        if path.exists() and not any(path.is_relative_to(above) for above in kept):
            kept.append(place)
    return kept


def build_root(root: str, trees: Iterable[str], uid: int) -> None:
    """Lay out a read-only root below `root`, in our own mount namespace.

    Args:
        root: Empty folder to mount it on.
        trees: Folders and files to show at their own paths.
        uid: Owner named in its /etc/passwd.
    """
    checked("mount", None, b"/", None, REC | PRIVATE, None)
    _mount_tmpfs(root, "size=4m,mode=0755")
    for folder in ("/proc", "/mnt", "/cache", *PRIVATE_FOLDERS):
        Path(root + folder).mkdir(parents=True, exist_ok=True)
    for tree in trees:
        _show(root, Path(tree))
    for name in DEVICES:
        _show(root, Path("/dev") / name)
    for name, target in (
        ("fd", ""),
        ("stdin", "/0"),
        ("stdout", "/1"),
        ("stderr", "/2"),
    ):
        Path(f"{root}/dev/{name}").symlink_to(f"/proc/self/fd{target}")
    _write_accounts(Path(root) / "etc", uid)
    _make_read_only(root)
    _mount_tmpfs(f"{root}/cache", "size=64m,mode=1777")  # of preloads, made once


def _show(root: str, path: Path, below: str = "/") -> None:
    target = Path(root) / path.relative_to(below)
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        if not target.exists():
            target.symlink_to(path.readlink())
        return
    if path.is_dir():
        target.mkdir(exist_ok=True)
    elif path.exists():
        target.touch()
    else:
        return
    checked("mount", str(path).encode(), str(target).encode(), None, BIND | REC, None)


def _write_accounts(folder: Path, uid: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "passwd").write_text(f"user:x:{uid}:{uid}::/session:/bin/sh\n")
    (folder / "group").write_text(f"user:x:{uid}:\n")


def _make_read_only(root: str) -> None:
    attributes = struct.pack("QQQQ", ATTR_RDONLY | ATTR_NOSUID, 0, 0, 0)
    checked(
        "mount_setattr",
        -100,  # AT_FDCWD
        root.encode(),
        AT_RECURSIVE,
        attributes,
        ctypes.c_size_t(len(attributes)),
    )


def _mount_tmpfs(target: str, options: str) -> None:
    flags = NOSUID | NODEV
    checked("mount", b"tmpfs", target.encode(), b"tmpfs", flags, options.encode())


def mount_proc(target: str) -> None:
    """Show the processes of our own PID namespace, or nothing at all.

    A host may forbid a fresh /proc in a user namespace, as systemd's
    ProtectKernelTunables does; an empty one hides just as much.
    """
    flags = NOSUID | NODEV | NOEXEC
    try:
        checked("mount", b"proc", target.encode(), b"proc", flags, None)
    except OSError:
        _mount_tmpfs(target, "size=4k,mode=0555")


def bind_proc(root: str) -> None:
    """Keep the host's /proc reachable until our own can be mounted over it."""
    checked("mount", b"/proc", f"{root}/proc".encode(), None, BIND, None)


def switch_root(root: str) -> None:
    """Make `root` the root and let go of the old one (pivot_root(2), NOTES)."""
    os.chdir(root)
    checked("pivot_root", b".", b".")
    checked("umount2", b".", MNT_DETACH)
    os.chdir("/")


def hidden_trees(trees: Iterable[str]) -> list[tuple[str, str]]:
    """Find the trees that a private folder would hide, with that folder.

    A virtual environment in /tmp is one. Looked for once per pool, since each
    worker starts with `mount_private`.
    """
    return [
        (folder, tree)
        for folder in PRIVATE_FOLDERS
        for tree in trees
        if Path(tree).is_relative_to(folder)
    ]


def mount_private(disk_bytes: int, hidden: Iterable[tuple[str, str]]) -> None:
    """Give a worker empty writable folders of its own, of one common size.

    Args:
        disk_bytes: For all of `PRIVATE_FOLDERS` together; they live in memory.
        hidden: From `hidden_trees`; shown again inside.
    """
    inodes = max(1024, disk_bytes // 16384)
    _mount_tmpfs("/mnt", f"size={disk_bytes},nr_inodes={inodes},mode=0755")
    for folder in PRIVATE_FOLDERS:
        os.mkdir(_source(folder), 0o700)  # noqa: PTH102  # every microsecond counts
    for folder, tree in hidden:
        _show(_source(folder), Path(tree), below=folder)
    for folder in PRIVATE_FOLDERS:
        source = _source(folder).encode()
        checked("mount", source, folder.encode(), None, BIND | REC, None)
    checked("umount2", b"/mnt", MNT_DETACH)
    # All workers of a pool see what its preload left there; none may add to it.
    flags = REMOUNT | BIND | RDONLY | NOSUID | NODEV
    checked("mount", None, b"/cache", None, flags, None)
    mount_proc("/proc")


def _source(folder: str) -> str:
    return f"/mnt/{folder.rpartition('/')[2]}"
