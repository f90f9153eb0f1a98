"""What the workers of a pool are: preload, entry, sandbox."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from qedtrio.config import PoolConfig
from qedtrio.sandbox.tiers import Sandbox, Tier
from qedtrio.workers.child.protocol import Message

__all__ = [
    "JOB_ENTRY",
    "SESSION_ENTRY",
    "Profile",
    "launcher_environment",
    "session_profile",
]

SESSION_ENTRY = "qedtrio.workers.child.session:serve"
JOB_ENTRY = "qedtrio.workers.child.jobs:serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How the workers of one pool are made.

    Attributes:
        name: Of the pool, for logs and statistics.
        engine: `fork` or `exec`.
        preload: Modules imported before any worker serves.
        late_preload: Modules imported in each worker instead.
        entry: `module:function` that a worker runs.
        warm_up: `module:function` run once after the preload, or "".
        tier: Isolation to apply.
        uid: Whom workers become when the daemon is root.
        limits: Of every worker at birth; keys of `config.Limits`.
        start_seconds: The longest start of one worker.
        preload_seconds: The longest preload.
    """

    name: str
    engine: str = "fork"
    preload: tuple[str, ...] = ()
    late_preload: tuple[str, ...] = ()
    entry: str = SESSION_ENTRY
    warm_up: str = ""
    tier: Tier = Tier.C
    uid: int = 65534
    limits: Mapping[str, float]
    start_seconds: float = 30.0
    preload_seconds: float = 120.0

    def sandbox(self, root: str) -> Sandbox:
        """How its workers are isolated, built on an empty folder."""
        return Sandbox(
            tier=self.tier, uid=self.uid, root=root, limits=dict(self.limits)
        )

    def launcher_arguments(self, root: str, control: int) -> list[str]:
        """The command line of a launcher.

        Args:
            root: Empty folder to build the pool's root on.
            control: Descriptor of the control socket in the launcher.
        """
        spec: Message = {
            "name": self.name,
            "preload": list(self.preload),
            "late_preload": list(self.late_preload),
            "entry": self.entry,
            "warm_up": self.warm_up,
            "sandbox": asdict(self.sandbox(root)),
        }
        return [
            sys.executable,
            "-I",
            "-c",
            _BOOT,
            json.dumps(spec),
            str(control),
            _HOME,
        ]


def session_profile(
    name: str, pool: PoolConfig, *, tier: Tier, uid: int, limits: Mapping[str, float]
) -> Profile:
    """Make the profile of a session pool from its configuration."""
    return Profile(
        name=name,
        engine=pool.engine,
        preload=pool.preload,
        tier=tier,
        uid=uid,
        limits=limits,
        start_seconds=pool.start_seconds,
        preload_seconds=pool.preload_seconds,
    )


_HOME = str(Path(__file__).resolve().parents[2])

# -I keeps the current folder and the user's site off the path; a checkout
# that is not installed is still found, last.
_BOOT = (
    "import sys; home = sys.argv.pop();"
    " home in sys.path or sys.path.append(home);"
    " from qedtrio.workers.child.launcher import main; main()"
)


def launcher_environment() -> dict[str, str]:
    """The whole environment of every worker; nothing of the daemon's leaks in."""
    single = ("OPENBLAS", "OMP", "MKL", "NUMEXPR")
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
        "HOME": "/session",
        "TMPDIR": "/tmp",  # noqa: S108  # private to each worker
        "LANG": "C.UTF-8",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": "/cache/matplotlib",
        "XDG_CACHE_HOME": "/cache",  # fontconfig's, else it complains
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SYMPY_GROUND_TYPES": "python",  # a foreign gmpy2 aborts the process
        **{f"{library}_NUM_THREADS": "1" for library in single},
    }
