"""The effective configuration as TOML, each key with its meaning and source."""

from collections.abc import Iterator
from dataclasses import fields

from qedtrio.config.load import Sources
from qedtrio.config.model import Config

__all__ = ["render_config"]


def render_config(config: Config, sources: Sources) -> str:
    """Print `config` as TOML that `load_config` would read back.

    Args:
        config: What would run.
        sources: Where each key came from, as `load_config` returned it.
    """
    lines: list[str] = []
    for item in fields(config):
        section = getattr(config, item.name)
        if item.name == "listen":
            for number, listen in enumerate(section):
                lines += ["", "[[listen]]"]
                lines += _render_section(listen, f"listen[{number}]", sources, "listen")
        elif item.name == "pools":
            for name, pool in section.items():
                lines += ["", f"[pools.{name}]"]
                lines += _render_section(pool, f"pools.{name}", sources)
        else:
            lines += ["", f"[{item.name}]"]
            lines += _render_section(section, item.name, sources)
    return "\n".join(lines).lstrip("\n") + "\n"


def _render_section(
    section: object, key: str, sources: Sources, whole: str = ""
) -> Iterator[str]:
    for item in fields(section):  # type: ignore[arg-type]  # every section is a dataclass
        source = sources.get(f"{key}.{item.name}") or sources.get(whole) or "default"
        unit = item.name.rpartition("_")[2]
        unit = f" Unit: {unit}." if unit in {"bytes", "seconds", "chars"} else ""
        default = f" Default: {_toml(item.default)}." if source != "default" else ""
        yield f"# {item.metadata['text']}{unit}{default} Source: {source}."
        yield f"{item.name} = {_toml(getattr(section, item.name))}"


def _toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        case tuple():
            return "[" + ", ".join(_toml(item) for item in value) + "]"
        case _:
            return repr(value)
