"""How one key is declared: default, range, and the sentence that documents it."""

from dataclasses import dataclass, field, fields
from typing import TypeVar

from qedtrio.errors import ConfigError

__all__ = ["Manual", "Section", "check_range", "setting"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual:
    """What the manual says of a limit, beside its default and its sentence.

    Attributes:
        scope: What is counted together: a process, run, session and so on.
        reached: What a client sees, and whether state is lost.
        enforced: Who enforces it, in every tier or by tier.
    """

    scope: str
    reached: str
    enforced: str = "by the daemon, in every tier alike."


def setting(
    default: T,
    text: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] | None = None,
    manual: Manual | None = None,
) -> T:
    """Declare one key: its default, its documentation and its range."""
    meta = {
        "text": text,
        "least": least,
        "most": most,
        "choices": choices,
        "manual": manual,
    }
    made: T = field(default=default, metadata=meta)
    return made


class Section:
    """Checks every value against the range declared beside it."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Refuse a value outside its range, naming the key."""
        for item in fields(self):  # type: ignore[arg-type]  # each subclass is a dataclass
            check_range(item.name, getattr(self, item.name), **item.metadata)


def check_range(
    key: str,
    value: object,
    *,
    text: str = "",  # part of the metadata, not of the check
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] | None = None,
    manual: Manual | None = None,  # likewise
) -> None:
    """Raise `ConfigError` when `value` is outside the declared range."""
    if choices is not None and value not in choices:
        raise ConfigError(key, f"must be one of {', '.join(choices)}, got {value!r}")
    if not isinstance(value, int | float):
        return
    if least is not None and not value >= least:
        raise ConfigError(key, f"must be at least {least:g}, got {value!r}")
    if most is not None and not value <= most:
        raise ConfigError(key, f"must be at most {most:g}, got {value!r}")
