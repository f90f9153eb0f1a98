"""What would lift this host to a stronger tier, in words an operator can use."""

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qedtrio.sandbox import landlock
from qedtrio.sandbox.tiers import Tier

__all__ = ["Surroundings", "find_remedies", "look_around"]

LANDLOCK_KERNEL = (5, 13)

SETTINGS = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user.max_user_namespaces": ("0", "10000"),
    "user.max_pid_namespaces": ("0", "10000"),
    "user.max_net_namespaces": ("0", "10000"),
    "user.max_mnt_namespaces": ("0", "10000"),
    "user.max_ipc_namespaces": ("0", "10000"),
    "user.max_uts_namespaces": ("0", "10000"),
}
"""Kernel settings that can forbid namespaces: the forbidding value and a cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the advice depends on.

    Attributes:
        settings: Those of `SETTINGS` that exist, with their values.
        container: `docker`, `podman`, `kubernetes` or another name; "" for none.
        unit: The systemd service we are in; "" for none.
        filtered: Whether somebody filters our system calls.
        kernel: Release, two numbers of it.
        distribution: ID and VERSION_ID of os-release.
        modules: Active security modules, as the kernel lists them; "" if hidden.
        landlock_abi: 0 for none.
    """

    settings: dict[str, str] = field(default_factory=dict)
    container: str = ""
    unit: str = ""
    filtered: bool = False
    kernel: tuple[int, int] = (6, 0)
    distribution: tuple[str, str] = ("", "")
    modules: str = ""
    landlock_abi: int = 1


def look_around() -> Surroundings:
    """Read it all from the host."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    return Surroundings(
        settings={
            name: value
            for name in SETTINGS
            if (value := _read(f"/proc/sys/{name.replace('.', '/')}"))
        },
        container=_find_container(),
        unit=_last_match(r"/([^/\n]+\.service)", _read("/proc/self/cgroup")),
        filtered="Seccomp:\t2" in _read("/proc/self/status"),
        kernel=(int(release[1]), int(release[2])) if release else (0, 0),
        distribution=_read_distribution(),
        modules=_read("/sys/kernel/security/lsm"),
        landlock_abi=landlock.abi_version(),
    )


def find_remedies(tier: Tier, here: Surroundings) -> list[str]:
    """Say what to change so that a host reaches `tier`, likeliest first.

    Args:
        tier: A or B; C needs nothing.
        here: What the host is like.
    """
    return list(_for_namespaces(here) if tier is Tier.A else _for_landlock(here))


def _for_namespaces(here: Surroundings) -> Iterator[str]:
    for name, value in here.settings.items():
        forbidding, cure = SETTINGS[name]
        if value == forbidding:
            yield f"kernel setting: sysctl -w {name}={cure}"
    if here.container:
        yield _for_container(here.container)
    elif here.unit:
        yield (
            f"systemd directives: systemctl edit {here.unit}, take out"
            " RestrictNamespaces= and let SystemCallFilter= include @mount"
        )
    elif here.filtered:
        yield (
            "a system-call filter is in force: let it allow unshare, setns, mount,"
            " umount2 and pivot_root"
        )


def _for_container(name: str) -> str:
    if name == "kubernetes":
        return (
            "pod: securityContext.seccompProfile.type: Unconfined,"
            " appArmorProfile.type: Unconfined and procMount: Unmasked"
        )
    command = name if name in {"docker", "podman"} else "container"
    return (
        f"{command} run --security-opt seccomp=unconfined --security-opt"
        " apparmor=unconfined --security-opt systempaths=unconfined; or a seccomp"
        " profile that allows unshare, setns, mount, umount2 and pivot_root"
    )


def _for_landlock(here: Surroundings) -> Iterator[str]:
    if here.landlock_abi:
        return
    if here.kernel < LANDLOCK_KERNEL:
        yield f"package: {_kernel_package(here.distribution)} (Landlock needs 5.13)"
    elif here.modules and "landlock" not in here.modules:
        yield f"kernel parameter: lsm=landlock,{here.modules}"
    elif here.container or here.filtered:
        yield (
            "let the system-call filter allow landlock_create_ruleset,"
            " landlock_add_rule and landlock_restrict_self; a newer container runtime"
            " package does"
        )
    else:
        yield "a kernel with CONFIG_SECURITY_LANDLOCK, booted with landlock in lsm="


def _kernel_package(distribution: tuple[str, str]) -> str:
    match distribution:
        case "ubuntu", version:
            return f"linux-generic-hwe-{version}"
        case "debian", _:
            return "linux-image of the backports"
        case _:
            return "a newer kernel"


def _find_container() -> str:
    if Path("/var/run/secrets/kubernetes.io").exists():
        return "kubernetes"
    if Path("/run/.containerenv").exists():
        return "podman"
    if Path("/.dockerenv").exists():
        return "docker"
    return _read("/run/systemd/container")


def _read_distribution() -> tuple[str, str]:
    text = _read("/etc/os-release")
    found = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', text, re.MULTILINE))
    return found.get("ID", ""), found.get("VERSION_ID", "")


def _last_match(pattern: str, text: str) -> str:
    return next(reversed(re.findall(pattern, text)), "")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
