"""The one table: every route of the native API stands here and nowhere else.

It feeds the hot dispatcher, the Quart application, the description and the
tests. A dialect brings a table of its own.
"""

from qedtrio.api import native, operations, schema
from qedtrio.api.openapi import documentation_routes
from qedtrio.api.routing import Route, RouteTable
from qedtrio.api.status import DaemonStatus, Readiness
from qedtrio.results import RunResult, Verdict
from qedtrio.sessions.model import SessionInfo

__all__ = ["native_table"]

ADMISSION = ("draining", "overloaded", "queue_timeout")
STARTS = (*ADMISSION, "worker_start_failed")
RUNS = (*STARTS, "worker_lost", "code_too_large")
SESSION = ("session_not_found", "session_closed")

SESSIONS = (
    Route(
        method="POST",
        path="/v1/sessions",
        handler=native.create_session,
        summary="Open a session, or find the same one again (200).",
        body=schema.CreateBody,
        replies=(SessionInfo,),
        status=201,
        is_hot=True,
        admits=True,
        errors=("session_conflict", *STARTS),
    ),
    Route(
        method="GET",
        path="/v1/sessions",
        handler=native.list_sessions,
        summary="List the sessions.",
        replies=(schema.SessionList,),
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session_id}",
        handler=native.get_session,
        summary="Describe a session.",
        replies=(SessionInfo,),
        is_hot=True,
        errors=SESSION,
    ),
    Route(
        method="DELETE",
        path="/v1/sessions/{session_id}",
        handler=native.close_session,
        summary="Close a session; returns when its worker is confirmed dead.",
        replies=(schema.SessionClosed,),
        is_hot=True,
        errors=("session_not_found", "release_failed"),
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session_id}/run",
        handler=native.run_in_session,
        summary="Run code in a session.",
        body=schema.RunBody,
        replies=(RunResult,),
        is_hot=True,
        admits=True,
        streams=True,
        errors=(*SESSION, *RUNS),
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session_id}/interrupt",
        handler=native.interrupt,
        summary="Interrupt the session's current run; its state stays.",
        body=schema.EmptyBody,
        replies=(schema.InterruptReply,),
        is_hot=True,
        errors=SESSION,
    ),
)

WORK = (
    Route(
        method="POST",
        path="/v1/run",
        handler=native.run_once,
        summary="Run code in an interpreter of its own.",
        body=schema.RunOnceBody,
        replies=(RunResult,),
        is_hot=True,
        admits=True,
        streams=True,
        errors=RUNS,
    ),
    Route(
        method="POST",
        path="/v1/verify",
        handler=native.verify,
        summary="Judge a prediction, or a batch of them.",
        body=schema.VerifyBody,
        replies=(Verdict, schema.VerdictList),
        is_hot=True,
        admits=True,
        streams=True,
        errors=(*ADMISSION, "batch_too_large"),
    ),
)

OPERATIONS = (
    Route(
        method="GET",
        path="/livez",
        handler=operations.livez,
        summary="Whether the process answers.",
        replies=(operations.Liveness,),
        is_hot=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=operations.readyz,
        summary="Whether work can be done (200), or why not (503).",
        replies=(Readiness,),
    ),
    Route(
        method="GET",
        path="/healthz",
        handler=operations.healthz,
        summary="Both, with reasons; 503 when no work can be done.",
        replies=(operations.Health,),
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=operations.metrics,
        summary="Figures in Prometheus' text format.",
    ),
    Route(
        method="GET",
        path="/v1/status",
        handler=operations.status,
        summary="Figures as one JSON.",
        replies=(DaemonStatus,),
    ),
)

BENCH = (
    Route(
        method="POST",
        path="/bench/echo",
        handler=native.echo,
        summary="Repeat the body: the floor of benchmarks.",
        body=schema.EchoBody,
        replies=(schema.EchoBody,),
        is_hot=True,
    ),
)


def native_table(*, bench_echo: bool = False) -> RouteTable:
    """The native API; `bench_echo` adds the route that only benchmarks need."""
    routes = (*SESSIONS, *WORK, *OPERATIONS, *(BENCH if bench_echo else ()))
    return RouteTable((*routes, *documentation_routes(routes)))
