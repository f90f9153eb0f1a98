"""What the handlers need from the daemon: Protocols, so that fakes stand in."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from qedtrio.api.metrics import Metrics
from qedtrio.api.status import DaemonStatus, Readiness
from qedtrio.config import Config
from qedtrio.results import RunResult, Verdict
from qedtrio.sessions.model import OnOutput, RunRequest, SessionInfo, SessionOptions
from qedtrio.verify.model import VerifyItem

__all__ = ["Services", "Sessions", "Verifier"]


class Sessions(Protocol):
    """Named interpreter states and what runs in them."""

    async def create(
        self, session_id: str | None, options: SessionOptions
    ) -> tuple[SessionInfo, bool]:
        """Open a session, or find the one of the same id and options.

        Returns:
            The session, and whether it was newly made.

        Raises:
            SessionConflictError: The id is in use with other options.
            OverloadedError: No more sessions are admitted.
            WorkerStartError: No worker could be started.
        """

    def get(self, session_id: str) -> SessionInfo:
        """Describe one session.

        Raises:
            SessionNotFoundError: It was never opened.
            SessionClosedError: It is closed.
        """

    def list(self) -> list[SessionInfo]:
        """Describe every session that is not closed."""

    async def close(self, session_id: str) -> Literal["closed", "already_closed"]:
        """Close a session and wait until its worker is confirmed dead.

        Raises:
            SessionNotFoundError: It was never opened.
            ReleaseFailedError: Its worker would not die; it stays owned.
        """

    async def run(
        self,
        session_id: str,
        request: RunRequest,
        on_output: OnOutput | None = None,
    ) -> RunResult:
        """Run code in a session; cancellation interrupts the run."""

    async def interrupt(self, session_id: str) -> bool:
        """Interrupt the session's current run; False when none was running."""

    async def run_once(
        self,
        options: SessionOptions,
        request: RunRequest,
        files: Mapping[str, str],
        on_output: OnOutput | None = None,
    ) -> RunResult:
        """Run code in a fresh interpreter that holds `files` (path → text)."""


class Verifier(Protocol):
    """Judges predictions against references."""

    async def verify(self, item: VerifyItem) -> Verdict:
        """Judge one item.

        Raises:
            OverloadedError: The queue is full.
        """

    def verify_many(
        self, items: Sequence[VerifyItem]
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[int, Verdict]]]:
        """Open the verdicts of a batch, each with its index, as they finish.

        Leaving the block cancels what is unfinished.
        """


def name_no_pool(_session_id: str) -> str:
    """Stand in where nobody can tell a session's pool."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything a handler may touch.

    Attributes:
        readiness: Checks that work can be done, on real workers.
        status: The figures of `/v1/status` and `/metrics`, as of now.
        draining: Whether the daemon has stopped admitting.
        pool_of: Name of a session's pool, for metrics; "" when unknown.
            Must be cheap: it is asked on each run.
        bench_echo: Whether `POST /bench/echo` exists, for measurements.
    """

    config: Config
    sessions: Sessions
    verifier: Verifier
    readiness: Callable[[], Awaitable[Readiness]]
    status: Callable[[], DaemonStatus]
    metrics: Metrics
    draining: Callable[[], bool]
    pool_of: Callable[[str], str] = name_no_pool
    bench_echo: bool = False
