"""Every configuration key: type, unit in its name, default, and what it does.

The sentence that documents a key stands beside it, so that `check-config` and
the reference page are made from the same words.
"""

import os
from dataclasses import dataclass, field

from qedtrio.config.limits import Limits
from qedtrio.config.pool import PoolConfig, default_pools
from qedtrio.config.setting import Section, setting
from qedtrio.errors import ConfigError

__all__ = [
    "Config",
    "DaemonConfig",
    "HttpConfig",
    "Limits",
    "ListenConfig",
    "LogConfig",
    "PoolConfig",
    "VerifyConfig",
]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig(Section):
    """The process as a whole."""

    drain_seconds: float = setting(
        10.0,
        "After SIGTERM, running work may finish for this long; then it is killed"
        " and answered as retryable.",
        least=0,
        most=3600,
    )
    minimum_tier: str = setting(
        "C",
        "The weakest isolation tier to accept. The daemon refuses to start below"
        " it and names the remedy.",
        choices=("A", "B", "C"),
    )
    state_dir: str = setting(
        "",
        "Where the daemon makes a folder for its workers' private directories;"
        " empty means the system's temporary folder. It is removed at exit, or, if"
        " the daemon was killed, at the next start.",
    )
    cgroup: str = setting(
        "auto",
        "Where the daemon makes a control group (v2) for each leased worker. auto:"
        " below its own, where that was delegated to it; off: nowhere; a path: that"
        " folder of the v2 hierarchy, which the daemon then takes for itself.",
    )
    sandbox_uid: int = setting(
        65534,
        "User and group id that workers run as when the daemon runs as root.",
        least=1,
        most=2**31,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig(Section):
    """One listener."""

    api: str = setting("native", "Which API is served at the root of this address.")
    address: str = setting(
        "127.0.0.1:8733",
        "host:port (port 0 picks a free one), unix:/path, or fd:NAME for a socket"
        " passed by systemd.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyConfig(Section):
    """Verification of answers."""

    workers: int = setting(
        os.cpu_count() or 1,
        "Verify workers, each serving one item at a time.",
        least=1,
        most=1024,
    )
    queue_size: int = setting(
        4096,
        "Items that may wait for a worker; a single item beyond it gets 503, one"
        " in a batch the status `overloaded`.",
        least=1,
        most=1_000_000,
    )
    batch_items: int = setting(
        4096, "Items in one request at most; more get 413.", least=1, most=1_000_000
    )
    deadline_seconds: float = setting(
        5.0,
        "Work on one item may take this long; then its worker is killed and"
        " replaced, and the item is tried again or ends as `timeout`.",
        least=0.05,
        most=3600,
    )
    retries: int = setting(
        1,
        "How often an item whose worker died or overran is tried once more on a"
        " fresh worker.",
        least=0,
        most=10,
    )
    recycle_after: int = setting(
        5000, "Items after which a verify worker is replaced.", least=1
    )
    memory_bytes: int = setting(
        1 * GIB,
        "Address space of a verify worker; beyond it `resource_exceeded`.",
        least=256 * MIB,
    )
    answer_chars: int = setting(
        2000,
        "Longest extracted answer that is compared; a longer one is `unparsable`.",
        least=16,
        most=1_000_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig(Section):
    """Limits of each listener."""

    body_bytes: int = setting(
        16 * MIB, "Largest request body, chunked or not; more gets 413.", least=1024
    )
    body_seconds: float = setting(
        60.0, "A body that takes longer to arrive gets 408.", least=0.1, most=3600
    )
    header_bytes: int = setting(
        64 * KIB,
        "Request line and headers together; more gets 431 and a closed connection.",
        least=1024,
        most=16 * MIB,
    )
    connections: int = setting(
        4096, "Connections at most; more are closed at once.", least=1, most=65536
    )
    keep_alive_seconds: float = setting(
        75.0,
        "An idle connection is closed after this long; longer than common clients"
        " keep theirs.",
        least=0.1,
        most=3600,
    )
    send_seconds: float = setting(
        30.0,
        "A client that reads nothing for this long loses its connection.",
        least=0.1,
        most=3600,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig(Section):
    """What goes to stderr."""

    level: str = setting(
        "info",
        "Least severity that is logged.",
        choices=("debug", "info", "warning", "error"),
    )
    format: str = setting(
        "console",
        "console for people, json for collectors.",
        choices=("console", "json"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration, read once.

    Attributes:
        default_pool: The pool of a session that names none: `science` where
            it exists, else the first.
    """

    daemon: DaemonConfig = DaemonConfig()
    listen: tuple[ListenConfig, ...] = (ListenConfig(),)
    pools: dict[str, PoolConfig] = field(default_factory=default_pools)
    limits: Limits = Limits()  # noqa: RUF009  # frozen
    verify: VerifyConfig = VerifyConfig()
    http: HttpConfig = HttpConfig()
    log: LogConfig = LogConfig()

    def __post_init__(self) -> None:
        """Refuse contradictions between keys."""
        if not self.pools:
            raise ConfigError("pools", "at least one pool is needed")
        if "verify" in self.pools:
            raise ConfigError("pools.verify", "the name is taken by [verify]")
        if self.limits.deadline_seconds > self.limits.max_deadline_seconds:
            raise ConfigError(
                "limits.deadline_seconds", "is above limits.max_deadline_seconds"
            )

    @property
    def default_pool(self) -> str:
        """Name of the pool for sessions that name none."""
        return "science" if "science" in self.pools else next(iter(self.pools))
