"""Where the figures were measured; without it they mean nothing."""

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

import qedtrio

__all__ = ["Machine", "describe_machine"]

PACKAGES = (
    "trio",
    "hypercorn",
    "quart",
    "quart-trio",
    "h11",
    "msgspec",
    "math-verify",
    "sympy",
    "numpy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Processor, kernel, Python and packages.

    Attributes:
        cores: That this process may use.
        load_1m: Load average when the measurement began; the busier the
            machine was with other work, the less the figures say.
        packages: Name → version, where installed.
    """

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    qedtrio: str
    load_1m: float
    packages: dict[str, str]


def describe_machine() -> Machine:
    """Read the description of this machine."""
    return Machine(
        cpu=cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=int(psutil.virtual_memory().total),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {sys.version.split()[0]}",
        qedtrio=qedtrio.__version__,
        load_1m=os.getloadavg()[0],
        packages=package_versions(),
    )


def cpu_model() -> str:
    """Read the processor's name, which not every architecture tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    return names[0].strip() if names else platform.machine()


def package_versions() -> dict[str, str]:
    """Look up the versions of the packages that decide the figures."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
