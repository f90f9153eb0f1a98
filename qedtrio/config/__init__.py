"""Configuration: frozen values, read once at the entry and passed down.

Read `model` for every key with its unit, default and consequence, `load` for
where values come from, and `render` for how `check-config` prints them.
"""

from qedtrio.config.load import load_config
from qedtrio.config.model import (
    Config,
    DaemonConfig,
    HttpConfig,
    Limits,
    ListenConfig,
    LogConfig,
    PoolConfig,
    VerifyConfig,
)
from qedtrio.config.render import render_config

__all__ = [
    "Config",
    "DaemonConfig",
    "HttpConfig",
    "Limits",
    "ListenConfig",
    "LogConfig",
    "PoolConfig",
    "VerifyConfig",
    "load_config",
    "render_config",
]
