"""What goes into sessions and what is told about them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

__all__ = [
    "OnOutput",
    "OutputStream",
    "RunRequest",
    "SessionInfo",
    "SessionOptions",
    "SessionState",
]

OutputStream = Literal["stdout", "stderr"]

OnOutput = Callable[[OutputStream, str], None]
"""Called synchronously with each part of the output, in order; must not block."""


class SessionState(StrEnum):
    """Where a session stands between its opening and its receipt."""

    STARTING = "starting"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What a client may choose when it opens a session.

    Attributes:
        pool: Name of a pool; None for the configured default.
        seed: For the random generators; None for a fresh one.
        idle_seconds: At most the configured limit; None for that limit.
        lifetime_seconds: Likewise.
        limits: Names of `config.Limits` → lower values for this session.
    """

    pool: str | None = None
    seed: int | None = None
    idle_seconds: float | None = None
    lifetime_seconds: float | None = None
    limits: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One execution asked for.

    Attributes:
        code: UTF-8 Python source.
        deadline_seconds: From dispatch; None for the configured default.
        stdin: What `input()` reads before EOFError.
        run_id: Echoed in the result; None for a fresh one.
    """

    code: str
    deadline_seconds: float | None = None
    stdin: str = ""
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One session as its client sees it.

    Attributes:
        created_at: Unix time in seconds.
        expires_at: Unix time of the earlier of its idle and lifetime ends.
        limits: The limits in force for it.
        runs: Runs finished so far.
        memory_bytes: Resident size of its worker; 0 without one.
        cpu_seconds: Of its runs so far.
        idle_seconds: Since its last run ended.
    """

    session_id: str
    state: SessionState
    pool: str
    tier: str
    created_at: float
    expires_at: float
    limits: Mapping[str, float]
    runs: int = 0
    memory_bytes: int = 0
    cpu_seconds: float = 0.0
    idle_seconds: float = 0.0
