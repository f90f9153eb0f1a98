"""Configuration: sources, conversion, and errors that name the key."""

from pathlib import Path

import pytest

from qedtrio.config import Config, PoolConfig, load_config, render_config
from qedtrio.errors import ConfigError


def test_later_sources_override_earlier_ones(tmp_path: Path) -> None:
    """File, then environment, then flags, key by key."""
    path = tmp_path / "qedtrio.toml"
    path.write_text('[limits]\nsessions = 7\nprocesses = 9\n[log]\nlevel = "debug"\n')

    config, sources = load_config(
        path, {"QEDTRIO_LIMITS__SESSIONS": "8"}, ["native=127.0.0.1:0"]
    )

    assert (config.limits.sessions, config.limits.processes) == (8, 9)
    assert config.log.level == "debug"
    assert config.listen[0].address == "127.0.0.1:0"
    assert sources["limits.sessions"] == "QEDTRIO_LIMITS__SESSIONS"
    assert sources["limits.processes"] == str(path)


def test_rendered_configuration_reads_back_equal(tmp_path: Path) -> None:
    """What `check-config` prints is itself a configuration file."""
    config, sources = load_config(environment={"QEDTRIO_LIMITS__SESSIONS": "8"})
    path = tmp_path / "effective.toml"
    path.write_text(render_config(config, sources))

    again, _ = load_config(path)

    assert again == config


def test_tuning_one_builtin_pool_keeps_the_other() -> None:
    """Only naming new pools replaces the built-in ones."""
    config, _ = load_config(environment={"QEDTRIO_POOLS__PLAIN__READY_WORKERS": "3"})

    assert set(config.pools) == {"plain", "science"}
    assert config.pools["plain"].ready_workers == 3
    assert config.default_pool == "science"
    assert Config(pools={"only": PoolConfig()}).default_pool == "only"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limit]\n", "limit: unknown key; did you mean limits?"),
        ("[limits]\nsesions = 1\n", "limits.sesions: .*limits.sessions"),
        ("[limits]\nsessions = 1.5\n", "limits.sessions: must be int"),
        ("[limits]\nsessions = true\n", "limits.sessions: must be int"),
        ("[limits]\nsessions = 0\n", "limits.sessions: must be at least 1"),
        ("[limits]\ndeadline_seconds = nan\n", "limits.deadline_seconds: must be"),
        ("[limits]\ndeadline_seconds = 601\n", "limits.deadline_seconds: is above"),
        ("limits = 3\n", "limits: must be a table"),
        ("listen = []\n", "listen: must be a non-empty"),
        ("[[listen]]\naddres = 'x'\n", r"listen\[0\].addres: .*listen\[0\].address"),
        ("[pools.a]\nengine = 'thread'\n", "pools.a.engine: must be one of fork"),
        ("[pools.a]\npreload = 'numpy'\n", "pools.a.preload: must be an array"),
        ("[pools.verify]\n", "pools.verify: the name is taken"),
        ("[log]\nlevel = 'loud'\n", "log.level: must be one of"),
        ("broken", "is not TOML"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    """The message names the key, what is wrong, and the nearest known key."""
    path = tmp_path / "bad.toml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=said):
        load_config(path)


def test_a_missing_file_is_refused() -> None:
    """A path that cannot be read is an error, never silently the defaults."""
    with pytest.raises(ConfigError, match="No such file"):
        load_config(Path("/nonexistent/qedtrio.toml"))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("QEDTRIO_LIMITS__SESSIONS", "many", "limits.sessions: must be int"),
        ("QEDTRIO_NOPE__X", "1", "nope: unknown key"),
        ("QEDTRIO_LIMITS__SESSIONS__X", "1", "limits.sessions: must be int"),
    ],
)
def test_a_bad_variable_is_refused_by_name(name: str, text: str, said: str) -> None:
    """Environment variables are checked like the file."""
    with pytest.raises(ConfigError, match=said):
        load_config(environment={name: text})


@pytest.mark.parametrize("flag", ["native", "=x", "native="])
def test_a_bad_listen_flag_is_refused(flag: str) -> None:
    """`--listen` wants a dialect and an address."""
    with pytest.raises(ConfigError, match="NAME=ADDRESS"):
        load_config(listen=[flag])
