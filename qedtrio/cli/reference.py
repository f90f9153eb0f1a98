"""Makes the reference pages from the code that they describe.

`python -m qedtrio.cli.reference` rewrites them; a test fails while they differ
from what is made here, so that no page can go stale.
"""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import Field, fields
from pathlib import Path

from qedtrio.config import (
    DaemonConfig,
    HttpConfig,
    Limits,
    ListenConfig,
    LogConfig,
    PoolConfig,
    VerifyConfig,
)
from qedtrio.config.pool import SCIENCE, default_pools
from qedtrio.config.setting import Manual, Section
from qedtrio.errors import QedtrioError
from qedtrio.sessions.limits import LOWERABLE

__all__ = ["PAGES", "write_pages"]

FOLDER = Path("docs/reference")
MADE = "<!-- Made by `python -m qedtrio.cli.reference`; do not edit. -->"

SECTIONS: dict[str, type[Section]] = {
    "daemon": DaemonConfig,
    "listen": ListenConfig,
    "pools.NAME": PoolConfig,
    "limits": Limits,
    "verify": VerifyConfig,
    "http": HttpConfig,
    "log": LogConfig,
}

LIMITING = ("limits", "verify", "http")
"""Sections of nothing but limits."""

OF_THE_HOST = {"verify.workers": "one per processor"}
"""Defaults that depend on the host; the page must read the same on all."""

LOWERED_OTHERWISE = {
    "idle_seconds": "`idle_seconds` of `POST /v1/sessions`.",
    "lifetime_seconds": "`lifetime_seconds` of `POST /v1/sessions`.",
    "max_deadline_seconds": "no; each run has its own `deadline_seconds`.",
}
"""How a session asks for less, where not by its `limits`."""

UNITS = {"bytes": "bytes", "seconds": "seconds", "chars": "characters"}

CONFIGURATION = f"""
{MADE}

Values come from the defaults, then the file given by `--config`, then the environment, then flags.
Each overrides the one before, key by key.
The variable of `limits.sessions` is `QEDTRIO_LIMITS__SESSIONS`.
That of `pools.science.ready_workers` is `QEDTRIO_POOLS__SCIENCE__READY_WORKERS`.
An unknown key is refused, and the nearest known one is named.
`qedtrio check-config` prints what would run and where each value came from.
"""

LIMITS = f"""
{MADE}

Every limit has a key, a unit, a default and a consequence.
A session may ask for less than `[limits]` grants, never for more.
It does so in `limits` of `POST /v1/sessions` and `POST /v1/run`, as in `{{"limits": {{"cpu_seconds": 10}}}}`.
A value above the configured one, or too low to work with, is refused with 400 `invalid_request`, naming it.

What untrusted code does when it meets a limit is the status of its run.
What the daemon refuses is an error; see [errors](errors.md).
"State" is the interpreter with its variables; a session whose state is lost goes on with a fresh one.

Who enforces a limit depends on the isolation tier, which `qedtrio check-host` tells.
The kernel enforces resource limits (setrlimit(2)) and the sizes of tmpfs at once.
The watch is a task of the daemon that adds up what each session's processes use, every `limits.watch_seconds`.
Where a part of the control group hierarchy (v2) was delegated, each leased worker also gets a group of its own.
A systemd unit does that with `Delegate=yes`; `daemon.cgroup` says where otherwise.
Memory and pids controllers then hold the session's memory and processes too, and `cgroup.kill` is one more way to end it.
Killing and removing groups, and their processor time, are exercised by the tests; `memory.max` only where the hierarchy has a memory controller.
Without any of it everything below holds by resource limits and the watch.
"""

ERRORS = f"""
{MADE}

An error is a caller's mistake or the daemon's own fault.
It is answered as `application/problem+json` with one of the codes below.
What untrusted code does, however bad, is never an error but the `status` of a run.
An answer that cannot be judged is the `status` of a verdict.
Where a retry of the same request can help, the reply has `Retry-After`.

| code | HTTP | retry | exception | meaning |
| --- | --- | --- | --- | --- |
"""


def write_pages(folder: Path) -> None:
    """Write every generated page into `folder`."""
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")


def configuration_page() -> str:
    """Make the page that lists every key."""
    lines = ["# Configuration", *CONFIGURATION.splitlines()]
    for section, cls in SECTIONS.items():
        lines += ["", f"## `{heading(section)}`", "", first_line(cls), ""]
        lines += introduction(section)
        lines += ["| key | default | allowed | meaning |", "| --- | --- | --- | --- |"]
        for item in fields(cls):  # type: ignore[arg-type]  # each section is a dataclass
            cells = (f"`{item.name}`", default_of(section, item), allowed(item))
            lines.append(f"| {' | '.join(cells)} | {item.metadata['text']} |")
    return "\n".join(lines) + "\n"


def limits_page() -> str:
    """Make the page that says what happens when a limit is reached."""
    lines = ["# Limits", *LIMITS.splitlines()]
    for section in LIMITING:
        cls = SECTIONS[section]
        lines += ["", f"## `{heading(section)}`", "", first_line(cls)]
        for item in fields(cls):  # type: ignore[arg-type]  # each section is a dataclass
            lines += ["", f"### `{section}.{item.name}`", ""]
            lines.append(f"Default {default_of(section, item)}{unit_of(item)}.")
            lines += sentences(item.metadata["text"])
            if manual := item.metadata["manual"]:
                lines += ["", *manual_of(item.name, manual)]
    return "\n".join(lines) + "\n"


def manual_of(name: str, manual: Manual) -> Iterator[str]:
    """List what the manual says of one limit."""
    if name in LOWERABLE:
        lower = f'`{{"limits": {{"{name}": …}}}}`.'
    else:
        lower = LOWERED_OTHERWISE.get(name, "no.")
    for label, text in (
        ("Counts for", manual.scope),
        ("When reached", manual.reached),
        ("Enforced", manual.enforced),
        ("Lower per session", lower),
    ):
        first, *more = sentences(text)
        yield f"- {label}: {first}"
        yield from (f"  {line}" for line in more)


def sentences(text: str) -> list[str]:
    """Put each sentence on a line of its own."""
    return text.replace(". ", ".\n").splitlines()


def errors_page() -> str:
    """Make the page that lists the codes of problems."""
    lines = ["# Errors", *ERRORS.splitlines()]
    for error in walk(QedtrioError):
        retry = "yes" if error.status in {429, 503} else "no"
        parent = "" if error is QedtrioError else f" ({error.__base__.__name__})"  # type: ignore[union-attr]  # it has a base
        name = f"`{error.__name__}`{parent}"
        cells = f"`{error.code}` | {int(error.status)} | {retry} | {name}"
        lines.append(f"| {cells} | {first_line(error)} |")
    return "\n".join(lines) + "\n"


def heading(section: str) -> str:
    """Print a section's name as TOML does."""
    return "[[listen]]" if section == "listen" else f"[{section}]"


def introduction(section: str) -> list[str]:
    """Say what a table of keys cannot."""
    if section != "pools.NAME":
        return []
    pools = default_pools()
    ready = pools["science"].ready_workers
    return [
        "Without any, there are two pools.",
        f"`science` is the default one and keeps {ready} ready workers.",
        f"It preloads what is installed of {', '.join(SCIENCE)}.",
        f"`plain` preloads nothing and keeps {pools['plain'].ready_workers}.",
        "Tuning one of the two keeps the other; naming a new pool replaces both.",
        "",
    ]


def default_of(section: str, item: "Field[object]") -> str:
    """Print a default as TOML, or in words where the host decides."""
    if (words := OF_THE_HOST.get(f"{section}.{item.name}")) is not None:
        return words
    match item.default:
        case str():
            return f'`"{item.default}"`'
        case tuple():
            return "`[]`"
        case _:
            return f"`{item.default}`"


def allowed(item: "Field[object]") -> str:
    """Print the range or the choices of a key."""
    least, most = item.metadata["least"], item.metadata["most"]
    if choices := item.metadata["choices"]:
        return ", ".join(f"`{choice}`" for choice in choices)
    if least is None:
        return ""
    return f"{least:,} to {most:,}" if most is not None else f"{least:,} or more"


def unit_of(item: "Field[object]") -> str:
    """Name the unit that ends the key, if one does."""
    unit = UNITS.get(item.name.rpartition("_")[2])
    return f" {unit}" if unit else ""


def first_line(documented: type) -> str:
    """Read the first line of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def walk(error: type[QedtrioError]) -> Iterator[type[QedtrioError]]:
    """List an exception and all below it, each after its parent."""
    yield error
    for child in error.__subclasses__():
        if child.__module__ == QedtrioError.__module__:
            yield from walk(child)


PAGES = {
    "configuration.md": configuration_page,
    "limits.md": limits_page,
    "errors.md": errors_page,
}
"""File name → what makes the page."""


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
