"""The advice fits the host: setting, directive, runtime option or package."""

import pytest

from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.remedies import Surroundings, find_remedies

MODULES = "lockdown,capability,yama,apparmor"


@pytest.mark.parametrize(
    ("here", "remedy"),
    [
        (
            Surroundings(settings={"kernel.unprivileged_userns_clone": "0"}),
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            Surroundings(
                settings={"kernel.apparmor_restrict_unprivileged_userns": "1"}
            ),
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (Surroundings(unit="q.service", filtered=True), "systemctl edit q.service"),
        (Surroundings(container="docker"), "docker run --security-opt seccomp="),
        (Surroundings(container="kubernetes"), "procMount: Unmasked"),
        (Surroundings(filtered=True), "a system-call filter is in force"),
    ],
)
def test_namespaces_come_back_by(here: Surroundings, remedy: str) -> None:
    """What forbids them is named with its cure."""
    assert remedy in "; ".join(find_remedies(Tier.A, here))


@pytest.mark.parametrize(
    ("here", "remedy"),
    [
        (
            Surroundings(
                kernel=(5, 4), distribution=("ubuntu", "20.04"), landlock_abi=0
            ),
            "package: linux-generic-hwe-20.04",
        ),
        (
            Surroundings(kernel=(5, 10), distribution=("x", ""), landlock_abi=0),
            "a newer kernel",
        ),
        (
            Surroundings(kernel=(5, 15), modules=MODULES, landlock_abi=0),
            f"lsm=landlock,{MODULES}",
        ),
        (Surroundings(filtered=True, landlock_abi=0), "landlock_restrict_self"),
        (Surroundings(landlock_abi=0), "CONFIG_SECURITY_LANDLOCK"),
    ],
)
def test_landlock_comes_by(here: Surroundings, remedy: str) -> None:
    """A kernel, its parameter, or whoever filters."""
    assert remedy in "; ".join(find_remedies(Tier.B, here))


def test_a_host_that_is_well_needs_nothing() -> None:
    """Settings that allow are not mentioned."""
    here = Surroundings(settings={"user.max_user_namespaces": "63000"})

    assert find_remedies(Tier.A, here) == find_remedies(Tier.B, here) == []
