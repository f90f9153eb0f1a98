"""Where configuration comes from: TOML file, then environment, then flags.

Each later source overrides the earlier key by key. Environment variables are
`QEDTRIO_SECTION__KEY`, nested once more for pools: `QEDTRIO_POOLS__NAME__KEY`.
"""

import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from pathlib import Path

from qedtrio.config.model import Config, ListenConfig, PoolConfig
from qedtrio.config.pool import default_pools
from qedtrio.errors import ConfigError

__all__ = ["Sources", "load_config"]

PREFIX = "QEDTRIO_"

OUTSIDE = frozenset({"QEDTRIO_URL", "QEDTRIO_TOKEN"})
"""Variables that clients read; not configuration of the daemon."""

Sources = dict[str, str]
"""Dotted key → where its value came from; keys at their default are absent."""


def load_config(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    listen: Iterable[str] = (),
) -> tuple[Config, Sources]:
    """Read the configuration.

    Args:
        path: TOML file, or None for defaults.
        environment: Variables to look for `QEDTRIO_*` in.
        listen: `NAME=ADDRESS` flags; any replaces all configured listeners.

    Raises:
        ConfigError: A key is unknown, of the wrong type or out of range.
    """
    tree: dict[str, object] = {}
    sources: Sources = {}
    if path is not None:
        tree = _read_file(path)
        _note_sources(tree, "", str(path), sources)
    for name, text in sorted((environment or {}).items()):
        if name.startswith(PREFIX) and name not in OUTSIDE:
            _set_from_environment(tree, name, text, sources)
    if flags := list(listen):
        tree["listen"] = [_parse_listen(flag) for flag in flags]
        sources["listen"] = "--listen"
    return _build_config(tree), sources


def _read_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(path), error.strerror or str(error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not TOML: {error}") from error


def _note_sources(tree: object, key: str, source: str, sources: Sources) -> None:
    if isinstance(tree, dict):
        for name, value in tree.items():
            _note_sources(value, f"{key}.{name}" if key else name, source, sources)
    else:
        sources[key] = source


def _set_from_environment(
    tree: dict[str, object], name: str, text: str, sources: Sources
) -> None:
    parts = name.removeprefix(PREFIX).lower().split("__")
    node = tree
    for part in parts[:-1]:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(name, f"{part} has no keys below it")
        node = child
    node[parts[-1]] = _FromText(text)
    sources[".".join(parts)] = name


class _FromText(str):
    """A value from the environment, converted to whatever its key needs."""

    __slots__ = ()


def _parse_listen(flag: str) -> dict[str, object]:
    api, equals, address = flag.partition("=")
    if not equals or not api or not address:
        raise ConfigError("--listen", f"must be NAME=ADDRESS, got {flag!r}")
    return {"api": api, "address": address}


def _build_config(tree: dict[str, object]) -> Config:
    sections = {item.name: item for item in fields(Config)}
    _refuse_unknown(tree, sections, "")
    values: dict[str, object] = {}
    hints = typing.get_type_hints(Config)
    for name, raw in tree.items():
        if name == "pools":
            values[name] = _build_pools(raw)
        elif name == "listen":
            values[name] = _build_listen(raw)
        else:
            values[name] = _build_section(hints[name], raw, name)
    return Config(**values)  # type: ignore[arg-type]  # each value was built from its hint


def _build_pools(raw: object) -> dict[str, PoolConfig]:
    if not isinstance(raw, dict):
        raise ConfigError("pools", "must be a table of pools")
    defaults = default_pools()
    pools = {}
    for name, table in raw.items():
        base = defaults.get(name, PoolConfig())
        pools[name] = _build_section(PoolConfig, table, f"pools.{name}", base)
    # A file that tunes one of the two built-in pools keeps the other.
    return (defaults | pools) if set(pools) <= set(defaults) else pools


def _build_listen(raw: object) -> tuple[ListenConfig, ...]:
    if not isinstance(raw, list) or not raw:
        raise ConfigError("listen", "must be a non-empty array of tables")
    return tuple(
        _build_section(ListenConfig, table, f"listen[{number}]")
        for number, table in enumerate(raw)
    )


Built = typing.TypeVar("Built")


def _build_section(
    cls: type[Built], raw: object, key: str, base: Built | None = None
) -> Built:
    if not isinstance(raw, dict):
        raise ConfigError(key, "must be a table")
    assert is_dataclass(cls)
    known = {item.name: item for item in fields(cls)}
    _refuse_unknown(raw, known, f"{key}.")
    hints = typing.get_type_hints(cls)
    values = {name: getattr(base, name) for name in known} if base else {}
    for name, value in raw.items():
        values[name] = _convert(value, hints[name], f"{key}.{name}")
    try:
        return typing.cast("Built", cls(**values))
    except ConfigError as error:
        problem = str(error).partition(": ")[2]
        raise ConfigError(f"{key}.{error.key}", problem) from error


def _refuse_unknown(
    raw: Mapping[str, object], known: Mapping[str, Field[object]], prefix: str
) -> None:
    for name in raw:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            raise ConfigError(f"{prefix}{name}", f"unknown key{hint}")


def _convert(value: object, hint: object, key: str) -> object:
    if isinstance(value, _FromText):
        return _from_text(value, hint, key)
    if isinstance(hint, types.GenericAlias):  # tuple[str, ...] is the only one
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigError(key, f"must be an array of strings, got {value!r}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    assert isinstance(hint, type)
    if not isinstance(value, hint) or isinstance(value, bool) is not (hint is bool):
        raise ConfigError(key, f"must be {hint.__name__}, got {value!r}")
    return value


def _from_text(text: str, hint: object, key: str) -> object:
    if isinstance(hint, types.GenericAlias):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if hint is bool:
        if text.lower() in {"true", "1", "false", "0"}:
            return text.lower() in {"true", "1"}
        raise ConfigError(key, f"must be true or false, got {str(text)!r}")
    assert isinstance(hint, type)
    try:
        return hint(str(text))
    except ValueError as error:
        raise ConfigError(key, f"must be {hint.__name__}, got {str(text)!r}") from error
