"""Runs a command as on another host: an ordinary user, fewer kernel facilities.

    python -m tests.containment.hosts user|no-namespaces|no-landlock COMMAND...

As root it first shows an ordinary user the interpreter and this tree where
closed folders hide them, in a mount namespace of its own.
"""

import errno
import os
import signal
import struct
import sys
from pathlib import Path

from qedtrio.sandbox import landlock, mounts, namespaces, privileges, seccomp
from qedtrio.sandbox.libc import checked

__all__ = ["MODES", "USER", "command"]

USER = 1500
"""Nobody on any host, it is hoped; it need not exist."""

MODES = ("user", "no-namespaces", "no-landlock")


def command(mode: str, *arguments: str) -> list[str]:
    """The command line that runs another one as on such a host."""
    return [sys.executable, "-m", __name__, mode, *arguments]


def main() -> None:
    """Change this process as the mode says, and become the command."""
    mode, arguments = sys.argv[1], sys.argv[2:]
    if os.geteuid() == 0:
        namespaces.unshare(namespaces.MOUNT)
        checked("mount", None, b"/", None, mounts.REC | mounts.PRIVATE, None)
        show([*mounts.readable_trees(), str(Path.cwd())])
        privileges.become_user(USER)
    if mode != "user":
        forbid(with_landlock=mode == "no-landlock")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(arguments[0], arguments)


def show(trees: list[str]) -> None:
    """Replace each closed folder above a tree by one that shows the tree alone."""
    closed: dict[Path, list[Path]] = {}
    for tree in map(Path, trees):
        for place in reversed(tree.parents):
            if not place.stat().st_mode & 0o001:
                closed.setdefault(place, []).append(tree)
                break
    for place, hidden in closed.items():
        held = {tree: os.open(tree, os.O_PATH) for tree in hidden}
        target = str(place).encode()
        checked("mount", b"tmpfs", target, b"tmpfs", 0, b"mode=0755")
        for tree, descriptor in held.items():
            if tree.exists():  # below another that is shown already
                continue
            tree.mkdir(parents=True)
            source = f"/proc/self/fd/{descriptor}".encode()
            flags = mounts.BIND | mounts.REC
            checked("mount", source, str(tree).encode(), None, flags, None)


def forbid(*, with_landlock: bool) -> None:
    """Refuse namespaces, as container runtimes do, and Landlock on request."""
    lines = [(seccomp.LOAD, 0, 0, seccomp.OFFSET_NUMBER)]
    lines += seccomp._answer(["unshare", "setns", "mount"], errno.EPERM)
    lines += seccomp._answer(["clone3"], errno.ENOSYS)
    if with_landlock:
        lines += seccomp._answer(["landlock_create_ruleset"], errno.ENOSYS)
    flags = [(seccomp.JUMP_SET, seccomp.CLONE_DENIED)]
    lines += seccomp._when("clone", seccomp.FIRST, flags, allow=False)
    lines.append((seccomp.RETURN, 0, 0, seccomp.ALLOW))
    privileges.forbid_new_privileges()
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    seccomp.install_filter(program, os.getpid())
    assert not with_landlock or landlock.abi_version() == 0


if __name__ == "__main__":
    main()
