"""The one exception tree: callers' mistakes and the daemon's own faults.

What untrusted code does is a value (`qedtrio.results`), never one of these.
"""

from http import HTTPStatus

__all__ = [
    "BrokenWorkerError",
    "ConfigError",
    "DrainingError",
    "OverloadedError",
    "QedtrioError",
    "QueueTimeoutError",
    "QuotaExceededError",
    "ReleaseFailedError",
    "RequestError",
    "SessionClosedError",
    "SessionConflictError",
    "SessionNotFoundError",
    "WorkerError",
    "WorkerLostError",
    "WorkerStartError",
]


class QedtrioError(Exception):
    """Base of every error; never raised itself.

    Attributes:
        code: Stable, machine-readable name, part of the HTTP API.
        status: HTTP status that a front end answers with.
        retry_after_seconds: When a retry is likely to succeed; None where
            retrying the same request cannot help.
    """

    code: str = "internal_error"
    status: HTTPStatus = HTTPStatus.INTERNAL_SERVER_ERROR
    retry_after_seconds: float | None = None


class ConfigError(QedtrioError):
    """A configuration key is unknown, out of range or contradicts another."""

    code = "config_error"

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key


class RequestError(QedtrioError):
    """A request that no retry can mend.

    Attributes:
        field: Path of the offending field, such as `$.deadline_seconds`.
    """

    code = "invalid_request"
    status = HTTPStatus.BAD_REQUEST

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class SessionNotFoundError(QedtrioError):
    """No session of this id was ever opened, or its receipt has expired."""

    code = "session_not_found"
    status = HTTPStatus.NOT_FOUND

    def __init__(self, session_id: str) -> None:
        super().__init__(f"no session {session_id!r}")


class SessionConflictError(QedtrioError):
    """The session id is in use with other options, or was used before."""

    code = "session_conflict"
    status = HTTPStatus.CONFLICT

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(f"session {session_id!r} {why}")


class SessionClosedError(QedtrioError):
    """The session was closed, or expired, before the request had its turn."""

    code = "session_closed"
    status = HTTPStatus.GONE

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(f"session {session_id!r} was closed: {why}")


class OverloadedError(QedtrioError):
    """Admission refused the request: a bounded queue is full."""

    code = "overloaded"
    status = HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, what: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(f"{what}; retry in {retry_after_seconds:g} s")
        self.retry_after_seconds = retry_after_seconds


class QuotaExceededError(QedtrioError):
    """The principal holds as many sessions as it may; close one first."""

    code = "quota_exceeded"
    status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds = 5.0

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; close one, or retry later")


class QueueTimeoutError(QedtrioError):
    """The request waited its whole queue limit without getting a turn."""

    code = "queue_timeout"
    status = HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, waited_seconds: float) -> None:
        super().__init__(f"no turn within {waited_seconds:g} s")
        self.retry_after_seconds = 1.0


class DrainingError(QedtrioError):
    """The daemon is shutting down and admits nothing more."""

    code = "draining"
    status = HTTPStatus.SERVICE_UNAVAILABLE
    retry_after_seconds = 5.0

    def __init__(self) -> None:
        super().__init__("the daemon is draining; retry against its successor")


class WorkerError(QedtrioError):
    """A worker failed us; nothing is known about the code it was to run."""

    code = "worker_error"


class WorkerStartError(WorkerError):
    """No worker could be started."""

    code = "worker_start_failed"
    status = HTTPStatus.SERVICE_UNAVAILABLE
    retry_after_seconds = 1.0


class WorkerLostError(WorkerError):
    """The worker died by our fault or the host's; its state is gone."""

    code = "worker_lost"


class BrokenWorkerError(WorkerError):
    """The worker's control channel carried something that is no message."""

    code = "worker_broken"


class ReleaseFailedError(WorkerError):
    """A worker could not be confirmed dead; it stays owned and is retried."""

    code = "release_failed"
    status = HTTPStatus.SERVICE_UNAVAILABLE
    retry_after_seconds = 1.0
