"""Configuration of one pool, and the pools of a daemon that configures none."""

import importlib.util
from dataclasses import dataclass

from qedtrio.config.setting import Section, setting

__all__ = ["SCIENCE", "PoolConfig", "default_pools"]

SCIENCE = (
    "numpy",
    "numpy.random",  # loads lazily, as the next four do: 9 MB a worker otherwise
    "scipy.integrate",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.special",  # but not stats: it makes every fork a quarter dearer
    "pandas",
    "sympy",
    "mpmath",
    "networkx",
    "matplotlib.font_manager",  # lists the fonts once, for all workers
)
"""What the default session pool preloads, as far as it is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig(Section):
    """Workers of one preload profile."""

    engine: str = setting(
        "fork",
        "fork: workers are forked in milliseconds from a preloaded server."
        " exec: each worker loads for itself; for preloads that are not fork-safe.",
        choices=("fork", "exec"),
    )
    preload: tuple[str, ...] = setting(
        (), "Modules imported before any code runs. One that fails stops the pool."
    )
    ready_workers: int = setting(
        2,
        "Idle workers kept ready, so that opening a session costs one message.",
        least=0,
        most=256,
    )
    max_workers: int = setting(
        512,
        "Live workers at most; beyond it opening a session waits for"
        " `limits.queue_seconds`, then fails as `queue_timeout`.",
        least=1,
        most=65536,
    )
    recycle_forks: int = setting(
        10_000,
        "Workers after which the fork server is replaced by a fresh one, so that"
        " hash seed and address layout do not stay the same for long. Sessions"
        " keep their workers; with `exec` there is nothing to replace.",
        least=1,
        most=1_000_000_000,
    )
    recycle_seconds: float = setting(
        3600.0,
        "Age at which the fork server is replaced likewise, give or take a tenth.",
        least=1,
        most=31_536_000,
    )
    start_seconds: float = setting(
        30.0,
        "One worker may take this long to start; then it is killed and whoever"
        " waits for it gets 503 `worker_start_failed`. A fork server that does not"
        " answer for this long is killed with its workers, and replaced.",
        least=0.1,
        most=3600,
    )
    preload_seconds: float = setting(
        120.0,
        "The preload may take this long; then the pool counts as failed and is"
        " started again after a pause.",
        least=0.1,
        most=3600,
    )


def default_pools() -> dict[str, PoolConfig]:
    """`science` with what is installed of it, and `plain` with nothing."""
    # Looking for a submodule would import its package, so look for that.
    installed = tuple(
        name for name in SCIENCE if importlib.util.find_spec(name.partition(".")[0])
    )
    return {
        "science": PoolConfig(preload=installed, ready_workers=4),
        "plain": PoolConfig(ready_workers=1),
    }
