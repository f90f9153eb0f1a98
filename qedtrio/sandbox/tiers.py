"""The three isolation tiers, and what each applies to a pool and to a worker.

A: user, PID, mount, network, IPC and UTS namespaces, a root of its own,
   landlock, seccomp. Killing the first process of a worker's PID namespace
   kills all of it, whatever it did to hide.
B: where namespaces are refused: landlock and seccomp; setsid and setpgid do
   nothing, so that one killpg reaches every descendant.
C: process groups and a subreaper only, for development.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from qedtrio.sandbox import landlock, mounts, namespaces, privileges, seccomp
from qedtrio.sandbox.rlimits import apply_limits

__all__ = ["Sandbox", "Seal", "Tier"]


class Tier(StrEnum):
    """Isolation reached, strongest first."""

    A = "A"
    B = "B"
    C = "C"

    def reaches(self, minimum: "Tier") -> bool:
        """Whether this tier is at least as strong as `minimum`."""
        return self.value <= minimum.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What a pool prepares for the sealing of its workers.

    Attributes:
        program: For seccomp; empty in tier C.
        hidden: Trees to show again inside the private folders (tier A).
    """

    program: bytes
    hidden: list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """How the workers of one pool are isolated.

    Attributes:
        tier: What to apply.
        uid: Whom to become when started as root.
        root: Empty folder to build the pool's root on (tier A), or for what its
            preload caches.
        limits: Of every worker at birth; keys of `config.Limits`.
        trees: What may be read.
    """

    tier: Tier
    uid: int
    root: str
    limits: Mapping[str, float]
    trees: list[str] = field(default_factory=mounts.readable_trees)

    @classmethod
    def from_message(cls, fields: dict[str, object]) -> "Sandbox":
        """Make it again from what `asdict` made of it, on its way through JSON."""
        return cls(**{**fields, "tier": Tier(str(fields["tier"]))})  # type: ignore[arg-type]  # its own fields

    def worker_uid(self) -> int:
        """Whom workers run as: never root, where the interpreter allows it."""
        if os.geteuid() != 0:
            return os.geteuid()
        if self.tier is Tier.A or _is_readable_by_others(sys.prefix, sys.base_prefix):
            return self.uid
        return 0

    def leave_host(self) -> None:
        """Run in the launcher before it forks: leave the host's namespaces.

        Raises:
            OSError: The host does not allow this tier.
        """
        if self.tier is not Tier.A:
            uid = self.worker_uid()
            os.chown(self.root, uid, uid if os.geteuid() == 0 else -1)
            _cache_in(self.root)
            if uid != os.geteuid():
                privileges.become_user(self.uid)
            return
        if os.geteuid() == 0:
            # Root can show trees that the user we become could not reach.
            namespaces.unshare(namespaces.MOUNT)
            mounts.build_root(self.root, self.trees, self.uid)
            mounts.bind_proc(self.root)
            mounts.switch_root(self.root)
            privileges.become_user(self.uid)
            namespaces.unshare_user(_POOL_NAMESPACES)
        else:
            namespaces.unshare_user(_POOL_NAMESPACES)
            mounts.build_root(self.root, self.trees, os.geteuid())

    def settle_pool(self, *, started_as_root: bool) -> None:
        """Run in the first process of the pool's PID namespace."""
        if self.tier is not Tier.A:
            privileges.become_subreaper()
            return
        if started_as_root:
            mounts.mount_proc("/proc")
        else:
            mounts.mount_proc(f"{self.root}/proc")
            mounts.switch_root(self.root)

    def prepare_seal(self) -> "Seal":
        """Work out once per pool what is the same for all its workers."""
        program = b""
        if self.tier is Tier.A:
            program = seccomp.compile_filter()
        elif self.tier is Tier.B:
            # From ABI 6 on Landlock keeps signals in the worker's own domain.
            program = seccomp.compile_filter(
                pretend=("setsid", "setpgid"),
                shared=True,
                signal_self=landlock.abi_version() < landlock.SIGNALS_ABI,
            )
        return Seal(program=program, hidden=mounts.hidden_trees(self.trees))

    def seal_worker(self, seal: "Seal", folder: str) -> None:
        """Run in a fresh worker: from here on it can only compute.

        Args:
            seal: From `prepare_seal`.
            folder: Its private folder in tiers B and C.
        """
        if self.tier is Tier.A:
            namespaces.unshare(namespaces.MOUNT | namespaces.IPC)
            mounts.mount_private(int(self.limits["disk_bytes"]), seal.hidden)
            # A user namespace of its own counts its processes apart.
            with suppress(OSError):
                namespaces.unshare_user()
            folder = "/session"
        else:
            _live_in(folder)
        os.chdir(folder)
        apply_limits(self.limits)
        if self.tier is Tier.C:
            return
        with suppress(OSError):  # EPERM for a user that never had any
            privileges.drop_capabilities()
        privileges.forbid_new_privileges()
        self._restrict_files(folder)
        seccomp.install_filter(seal.program, os.getpid())

    def _restrict_files(self, folder: str) -> None:
        if self.tier is Tier.A:
            if not landlock.abi_version():
                return  # the root of its own shows nothing else anyway
            landlock.restrict_files(["/"], [*mounts.PRIVATE_FOLDERS, "/dev", "/proc"])
        else:
            devices = [f"/dev/{name}" for name in mounts.DEVICES]
            # Its own /proc entry and nobody else's; children get none.
            proc = ["/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat"]
            readable = [*self.trees, self.root, *proc]
            landlock.restrict_files(readable, [folder, *devices])


def _live_in(folder: str) -> None:
    """Make a folder of the host what /session and /tmp are in tier A."""
    for name in ("HOME", "TMPDIR"):
        os.environ[name] = folder
    _cache_in(folder)
    if preloaded := sys.modules.get("tempfile"):
        preloaded.tempdir = None  # type: ignore[attr-defined]  # looked up anew


def _cache_in(folder: str) -> None:
    """Let libraries keep their caches here instead of in tier A's /cache."""
    for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME"):
        os.environ[name] = folder


def _is_readable_by_others(*folders: str) -> bool:
    """Whether anybody may enter every folder on the way to these."""
    return all(
        place.stat().st_mode & 0o001
        for folder in folders
        for place in (Path(folder), *Path(folder).parents)
    )


_POOL_NAMESPACES = (
    namespaces.PID
    | namespaces.MOUNT
    | namespaces.NETWORK
    | namespaces.IPC
    | namespaces.UTS
)
