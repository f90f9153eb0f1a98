"""What runs and verifications conclude: frozen values, never exceptions."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

__all__ = [
    "RunError",
    "RunResult",
    "RunStatus",
    "Truncated",
    "Verdict",
    "VerdictStatus",
]


class RunStatus(StrEnum):
    """How untrusted code ended."""

    OK = "ok"
    ERROR = "error"
    TIMED_OUT = "timed_out"
    MEMORY_EXCEEDED = "memory_exceeded"
    OUTPUT_EXCEEDED = "output_exceeded"
    EXITED = "exited"
    SIGNALLED = "signalled"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """What the code raised.

    Attributes:
        type: Class name, qualified unless built in.
        message: `str()` of the exception, or a note where that failed.
        traceback: User lines only, with line numbers.
    """

    type: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """Bytes dropped from the middle of each stream; 0 when all was kept."""

    stdout_bytes: int = 0
    stderr_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One execution of untrusted code.

    Attributes:
        run_id: The client's, or a fresh one.
        status: How it ended.
        stdout: Decoded output, head and tail when cut.
        stderr: Likewise.
        result: Bounded repr of the last expression, None if there was none
            or it was None.
        error: What it raised, for `error` and some other statuses.
        exit_code: For `exited`.
        signal: For `signalled`: the signal's number.
        state: Whether the session's interpreter survived.
        truncated: Bytes dropped from the streams.
        wall_seconds: From dispatch to the worker until its reply.
        cpu_seconds: User and system time of the worker and its children.
        queue_seconds: Waiting before dispatch.
        peak_memory_bytes: Highest resident size of the worker so far, pages
            shared with its pool included.
        threads_left: Threads of the code still running after it ended.
    """

    run_id: str
    status: RunStatus
    stdout: str = ""
    stderr: str = ""
    result: str | None = None
    error: RunError | None = None
    exit_code: int | None = None
    signal: int | None = None
    state: Literal["kept", "lost"] = "kept"
    truncated: Truncated = Truncated()
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    queue_seconds: float = 0.0
    peak_memory_bytes: int = 0
    threads_left: int = 0


class VerdictStatus(StrEnum):
    """What verification concludes; only the first two are decided."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    EMPTY_ANSWER = "empty_answer"
    UNPARSABLE = "unparsable"
    GOLD_ERROR = "gold_error"
    TIMEOUT = "timeout"
    RESOURCE_EXCEEDED = "resource_exceeded"
    WORKER_DIED = "worker_died"
    CANCELLED = "cancelled"
    OVERLOADED = "overloaded"

    @property
    def correct(self) -> bool | None:
        """True or False where decided against the answer, None where not."""
        match self:
            case VerdictStatus.CORRECT:
                return True
            case (
                VerdictStatus.WRONG
                | VerdictStatus.NO_ANSWER
                | VerdictStatus.EMPTY_ANSWER
                | VerdictStatus.UNPARSABLE
            ):
                return False
            case _:
                return None

    @property
    def reward(self) -> float | None:
        """1.0, 0.0, or None: drop the sample, nobody knows."""
        correct = self.correct
        return None if correct is None else float(correct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One verification.

    Attributes:
        status: The conclusion.
        correct: True, False, or None while undecided.
        reward: 1.0, 0.0, or None: the trainer should drop the sample.
        extracted: The answer found in the prediction.
        gold: The reference as it was compared.
        method: What decided, such as `extract`, `string` or `math_verify`.
        reason: One short sentence for people.
        cached: Whether an earlier verdict was reused.
        wall_seconds: Work on this item, in the daemon and in its worker.
        queue_seconds: Waiting for a worker.
    """

    status: VerdictStatus
    correct: bool | None
    reward: float | None
    extracted: str | None
    gold: str
    method: str
    reason: str
    cached: bool = False
    wall_seconds: float = 0.0
    queue_seconds: float = 0.0
