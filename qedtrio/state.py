"""The daemon's folder on the host: claimed by a lock, removed by whoever is left.

A daemon that is SIGKILLed cannot remove its folder, so the next one does. Each
folder holds a lock file that its daemon keeps locked (flock(2)) for as long as
it lives; the kernel lets go of the lock with the process, so an unlocked one is
stale, and no process id has to be guessed at. The file gets its name only once
it is locked: a folder without one is foreign, or not yet claimed, and is left
alone.
"""

import errno
import fcntl
import itertools
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

__all__ = ["PREFIX", "claim_folder", "remove_folder", "remove_stale_folders"]

PREFIX = "qedtrio-"
LOCK = "daemon.lock"
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}
"""Untrusted code chose the name that we wanted (rename(2))."""

log = logging.getLogger(__name__)


@contextmanager
def claim_folder(parent: str) -> Iterator[str]:
    """Make a folder of our own, and remove it at the end.

    Args:
        parent: Where; "" for the host's temporary folder.

    Raises:
        OSError: It cannot be made there.
    """
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent or None)
    with ExitStack() as undo:
        try:
            os.chmod(folder, 0o711)  # noqa: PTH101, S103  # workers may be another user
            undo.callback(os.close, _lock_new(folder))
            yield folder
        finally:  # still locked, so that nobody else removes it as well
            remove_folder(folder)


def _lock_new(folder: str) -> int:
    unnamed = f"{folder}/{LOCK}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(unnamed, f"{folder}/{LOCK}")  # noqa: PTH104
    except BaseException:
        os.close(lock)
        raise
    return lock


def remove_stale_folders(parent: str) -> int:
    """Remove what killed daemons of this user left; return how many folders.

    Daemons that start together do no harm to each other, nor to folders that
    have our name but are not ours.
    """
    removed = 0
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # foreign, in use, or gone by now
            if _is_own(folder) and (lock := _lock_stale(folder)) is not None:
                try:
                    removed += remove_folder(str(folder))
                finally:
                    os.close(lock)
    return removed


def _is_own(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _lock_stale(folder: Path) -> int | None:
    """Lock the folder of a dead daemon; None while its daemon lives."""
    path = folder / LOCK
    lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody else may have removed it, and a new daemon taken its name.
        if os.path.samestat(os.fstat(lock), path.lstat()):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def remove_folder(folder: str) -> bool:
    """Remove a folder whatever untrusted code made of it; whether it is gone.

    Folders nested without end are lifted up rather than descended into, so
    that neither the stack nor the number of open files limits the depth.
    Symbolic links are never followed. Nobody may write there any more.
    """
    try:
        top = _open_folder(folder, None)
        try:
            names = itertools.count()
            while entries := os.listdir(top):  # noqa: PTH208  # by descriptor
                for name in entries:
                    _remove_entry(name, top, names)
        finally:
            os.close(top)
        os.rmdir(folder)  # noqa: PTH106
    except FileNotFoundError:
        return True
    except OSError as error:
        log.warning("folder not removed", extra={"folder": folder, "why": str(error)})
        return False
    return True


def _remove_entry(name: str, top: int, names: Iterator[int]) -> None:
    """Remove an entry of `top`; what lies in a folder moves up before."""
    if not _is_folder(name, top):
        os.unlink(name, dir_fd=top)
        return
    inner = _open_folder(name, top)
    try:
        for entry in os.listdir(inner):  # noqa: PTH208  # by descriptor
            if _is_folder(entry, inner):
                _make_ours(entry, inner)
                _lift(entry, inner, top, names)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _lift(entry: str, inner: int, top: int, names: Iterator[int]) -> None:
    while True:
        try:
            os.rename(entry, f".{next(names)}", src_dir_fd=inner, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode)


def _open_folder(name: str, parent: int | None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    _make_ours(name, parent)
    return os.open(name, flags, dir_fd=parent)


def _make_ours(name: str, parent: int | None) -> None:
    """Let the owner in; root needs no leave, and nobody else could give it."""
    if os.geteuid() != 0:
        os.chmod(name, 0o700, dir_fd=parent)
