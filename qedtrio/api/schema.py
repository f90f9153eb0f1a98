"""Request bodies: names, types and ranges; unknown keys are refused.

Ranges that the configuration sets, such as the longest deadline, are checked
by the handlers, which know it.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from qedtrio.config import Limits
from qedtrio.errors import RequestError
from qedtrio.results import Verdict
from qedtrio.sessions.model import RunRequest, SessionInfo, SessionOptions
from qedtrio.verify.given import GivenOptions
from qedtrio.verify.model import VerifyItem

__all__ = [
    "CreateBody",
    "EchoBody",
    "EmptyBody",
    "InterruptReply",
    "LimitsBody",
    "RunBody",
    "RunOnceBody",
    "SessionClosed",
    "SessionList",
    "VerdictList",
    "VerifyBody",
    "VerifyItemBody",
    "checked_files",
]

MAX_FILES = 256
MAX_PATH_CHARS = 255

_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:@=+~-]*$"

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=_NAME,
        description="Letters, digits and _ . : @ = + ~ - after the first.",
    ),
]
Seconds = Annotated[float, Meta(gt=0, le=2_592_000)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]

NOT_PER_SESSION = {"sessions", "output_policy", "idle_seconds", "lifetime_seconds"}
"""Limits of the daemon, or ones that have a key of their own in the body."""


def _limit_fields() -> list[tuple[str, object, object]]:
    """One optional number for each limit that a session may lower."""
    made: list[tuple[str, object, object]] = []
    for item in fields(Limits):
        if item.name in NOT_PER_SESSION:
            continue
        number: object = int if isinstance(item.default, int) else float
        least, text = item.metadata["least"], item.metadata["text"]
        # TOML's upper ends are the operator's business; the domain refuses
        # whatever is above the configured value.
        range_ = Meta(ge=least, le=2**62, description=text)
        kind = Annotated[number, range_]  # type: ignore[valid-type]  # made at run time
        made.append((item.name, kind | UnsetType, UNSET))
    return made


LimitsBody = msgspec.defstruct(
    "LimitsBody",
    _limit_fields(),
    forbid_unknown_fields=True,
    kw_only=True,
    frozen=True,
    namespace={"__doc__": "Lower limits for one session; absent means as configured."},
)
"""Made from `config.Limits`, so that each wrong limit is named."""


class Body(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Base of every request body."""


class EmptyBody(Body, frozen=True):
    """Takes no keys."""


class EchoBody(Body, frozen=True):
    """What the benchmark's echo repeats."""

    text: str = ""


def _given(body: Struct | None) -> Mapping[str, float] | None:
    """The limits that were given, None when the key was absent."""
    if body is None:
        return None
    values = msgspec.structs.asdict(body).items()
    return {name: value for name, value in values if value is not UNSET}


class CreateBody(Body, frozen=True):
    """How to open a session; everything is optional."""

    session_id: Name | None = None
    pool: Name | None = None
    seed: Seed | None = None
    idle_seconds: Seconds | None = None
    lifetime_seconds: Seconds | None = None
    limits: LimitsBody | None = None  # type: ignore[valid-type]  # made at run time

    def options(self) -> SessionOptions:
        """The domain's form."""
        return SessionOptions(
            pool=self.pool,
            seed=self.seed,
            idle_seconds=self.idle_seconds,
            lifetime_seconds=self.lifetime_seconds,
            limits=_given(self.limits),
        )


class RunBody(Body, frozen=True):
    """Code to run in a session."""

    code: str
    deadline_seconds: Seconds | None = None
    stdin: str = ""
    run_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None

    def run_request(self) -> RunRequest:
        """The domain's form."""
        return RunRequest(
            code=self.code,
            deadline_seconds=self.deadline_seconds,
            stdin=self.stdin,
            run_id=self.run_id,
        )


class RunOnceBody(RunBody, frozen=True):
    """Code to run in an interpreter of its own."""

    pool: Name | None = None
    seed: Seed | None = None
    limits: LimitsBody | None = None  # type: ignore[valid-type]  # made at run time
    files: Annotated[dict[str, str], Meta(max_length=MAX_FILES)] = {}

    def options(self) -> SessionOptions:
        """The domain's form of what concerns the interpreter."""
        return SessionOptions(
            pool=self.pool, seed=self.seed, limits=_given(self.limits)
        )


class VerifyItemBody(Body, frozen=True):
    """A prediction and its reference."""

    gold: str
    prediction: str
    options: GivenOptions = GivenOptions()

    def item(self) -> VerifyItem:
        """The domain's form."""
        return VerifyItem(
            gold=self.gold,
            prediction=self.prediction,
            options=self.options.resolve(),
        )


class VerifyBody(Body, frozen=True):
    """One item (`gold`, `prediction`, `options`) or a batch (`items`)."""

    items: list[VerifyItemBody] | UnsetType = UNSET
    gold: str | UnsetType = UNSET
    prediction: str | UnsetType = UNSET
    options: GivenOptions | UnsetType = UNSET

    def batch(self) -> list[VerifyItem] | None:
        """The items of a batch, None for a single item.

        Raises:
            RequestError: Keys of both forms are mixed.
        """
        if self.items is UNSET:
            return None
        for name in ("gold", "prediction", "options"):
            if getattr(self, name) is not UNSET:
                raise RequestError(f"$.{name}", "cannot stand beside `items`")
        return [item.item() for item in self.items]

    def single(self) -> VerifyItem:
        """The one item.

        Raises:
            RequestError: A required key is missing.
        """
        if self.gold is UNSET:
            raise RequestError("$.gold", "is required unless `items` is given")
        if self.prediction is UNSET:
            raise RequestError("$.prediction", "is required")
        options = GivenOptions() if self.options is UNSET else self.options
        return VerifyItemBody(
            gold=self.gold, prediction=self.prediction, options=options
        ).item()


class SessionList(Struct, frozen=True):
    """Every session that is not closed."""

    sessions: list[SessionInfo]


class SessionClosed(Struct, frozen=True):
    """A session is closed and its worker confirmed dead."""

    session_id: str
    outcome: Literal["closed", "already_closed"]


class InterruptReply(Struct, frozen=True):
    """Whether a run was there to interrupt."""

    session_id: str
    interrupted: bool


class VerdictList(Struct, frozen=True):
    """One verdict for each item, in the order of the items."""

    verdicts: list[Verdict]


def checked_files(files: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse paths that could leave the private directory.

    Raises:
        RequestError: Naming the path.
    """
    for path in files:
        problem = _path_problem(path)
        if problem:
            raise RequestError(f"$.files[{path[:80]!r}]", problem)
    return files


def _path_problem(path: str) -> str:
    """Why `path` is no plain relative path, "" when it is one."""
    if not path or len(path) > MAX_PATH_CHARS:
        return f"must have 1 to {MAX_PATH_CHARS} characters"
    if not path.isprintable() or "\\" in path:
        return "must not hold backslashes or unprintable characters"
    if any(part in {"", ".", ".."} for part in path.split("/")):
        return "must be relative, without empty parts, `.` or `..`"
    return ""
