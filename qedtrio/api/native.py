"""The native API's handlers: sessions, runs and verdicts."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from http import HTTPStatus

from qedtrio.api import schema
from qedtrio.api.messages import NDJSON, Reply, Request
from qedtrio.api.problem import HttpError
from qedtrio.api.services import Services
from qedtrio.api.streams import open_run_lines, open_verdict_lines
from qedtrio.config import Config
from qedtrio.errors import RequestError
from qedtrio.results import RunResult, Verdict
from qedtrio.sessions.model import OnOutput, RunRequest
from qedtrio.verify.model import VerifyItem

__all__ = [
    "close_session",
    "create_session",
    "echo",
    "get_session",
    "interrupt",
    "list_sessions",
    "run_in_session",
    "run_once",
    "verify",
]


async def create_session(services: Services, request: Request) -> Reply:
    """Open a session; the same id and options again find the same one."""
    body = request.body_as(schema.CreateBody)
    info, is_new = await services.sessions.create(body.session_id, body.options())
    return Reply.of(info, HTTPStatus.CREATED if is_new else HTTPStatus.OK)


async def list_sessions(services: Services, _request: Request) -> Reply:  # noqa: ASYNC124  # as all handlers
    """List every session that is not closed."""
    return Reply.of(schema.SessionList(services.sessions.list()))


async def get_session(services: Services, request: Request) -> Reply:  # noqa: ASYNC124  # as all handlers
    """Describe one session."""
    return Reply.of(services.sessions.get(request.path["session_id"]))


async def close_session(services: Services, request: Request) -> Reply:
    """Close a session and wait until its worker is confirmed dead."""
    session_id = request.path["session_id"]
    outcome = await services.sessions.close(session_id)
    return Reply.of(schema.SessionClosed(session_id, outcome))


async def interrupt(services: Services, request: Request) -> Reply:
    """Interrupt the session's current run; its state stays."""
    session_id = request.path["session_id"]
    interrupted = await services.sessions.interrupt(session_id)
    return Reply.of(schema.InterruptReply(session_id, interrupted))


async def run_in_session(services: Services, request: Request) -> Reply:
    """Run code in a session, after the runs that came before."""
    asked = request.body_as(schema.RunBody).run_request()
    check_run(services.config, asked)
    session_id = request.path["session_id"]

    async def run(on_output: OnOutput | None) -> RunResult:
        result = await services.sessions.run(session_id, asked, on_output)
        services.metrics.observe_run(services.pool_of(session_id), result)
        return result

    if request.headers.accepts(NDJSON):
        return Reply.stream(partial(open_run_lines, run, request.request_id))
    return Reply.of(await run(None))


async def run_once(services: Services, request: Request) -> Reply:
    """Run code in an interpreter of its own, which ends with it."""
    body = request.body_as(schema.RunOnceBody)
    asked, options = body.run_request(), body.options()
    check_run(services.config, asked)
    files = schema.checked_files(body.files)

    async def run(on_output: OnOutput | None) -> RunResult:
        result = await services.sessions.run_once(options, asked, files, on_output)
        pool = options.pool or services.config.default_pool
        services.metrics.observe_run(pool, result)
        return result

    if request.headers.accepts(NDJSON):
        return Reply.stream(partial(open_run_lines, run, request.request_id))
    return Reply.of(await run(None))


async def verify(services: Services, request: Request) -> Reply:
    """Judge one prediction, or a batch of them."""
    body = request.body_as(schema.VerifyBody)
    batch = body.batch()
    if batch is None:
        items = [body.single()]
        check_item(services.config, items[0], "$")
    else:
        items = batch
        check_batch(services.config, items)
    if request.headers.accepts(NDJSON):
        return Reply.stream(partial(_open_lines, services, items, request.request_id))
    if batch is None:
        return Reply.of(await services.verifier.verify(items[0]))
    return Reply.of(schema.VerdictList(await _judge(services, items)))


def _open_lines(
    services: Services, items: list[VerifyItem], request_id: str
) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    """Open a batch as lines."""
    verdicts = services.verifier.verify_many(items)
    return open_verdict_lines(verdicts, len(items), request_id)


async def _judge(services: Services, items: list[VerifyItem]) -> list[Verdict]:
    """Verdicts in the order of the items."""
    async with services.verifier.verify_many(items) as finished:
        found = {index: verdict async for index, verdict in finished}
    return [found[index] for index in range(len(items))]


async def echo(_services: Services, request: Request) -> Reply:  # noqa: ASYNC124  # as all handlers
    """Repeat the body: the floor that benchmarks compare with."""
    return Reply.of(request.body_as(schema.EchoBody))


def check_run(config: Config, asked: RunRequest) -> None:
    """Refuse what the configured limits do not allow.

    Raises:
        RequestError: The deadline is longer than allowed.
        HttpError: The code is longer than allowed (413).
    """
    _check_seconds(
        asked.deadline_seconds,
        config.limits.max_deadline_seconds,
        "$.deadline_seconds",
    )
    most = config.limits.code_bytes
    if len(asked.code) > most or len(asked.code.encode()) > most:
        raise HttpError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "code_too_large",
            f"$.code: at most {most} bytes are accepted",
            field="$.code",
        )


def check_batch(config: Config, items: list[VerifyItem]) -> None:
    """Refuse what the configured limits do not allow.

    Raises:
        RequestError: A deadline is longer than allowed.
        HttpError: The batch has too many items (413).
    """
    most = config.verify.batch_items
    if len(items) > most:
        raise HttpError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "batch_too_large",
            f"$.items: at most {most} items are accepted",
            field="$.items",
        )
    for index, item in enumerate(items):
        check_item(config, item, f"$.items[{index}]")


def check_item(config: Config, item: VerifyItem, field: str) -> None:
    """Refuse a deadline beyond the configured one.

    Raises:
        RequestError: Naming the field below `field`.
    """
    _check_seconds(
        item.options.deadline_seconds,
        config.verify.deadline_seconds,
        f"{field}.options.deadline_seconds",
    )


def _check_seconds(asked: float | None, most: float, field: str) -> None:
    """Refuse a deadline beyond the configured one."""
    if asked is not None and asked > most:
        raise RequestError(field, f"must be at most {most:g}")
