"""Serves an ASGI application on a listening socket, come what may.

Theory of operation. `serve_listener` owns no socket: it accepts on a
duplicate of the one it is given. When the accepting task fails, its
connections end, the failure is logged, and after a pause that grows with each
failure in a row accepting begins again on a new duplicate. In between, new
clients wait in the kernel's backlog; none is refused, and nothing outside
this module notices. To end, `shutdown` is set: no more is accepted, idle
connections close at once, busy ones after their response, all others when the
grace is over. Connections are served by `connection`.
"""

import logging
import socket
from functools import partial
from typing import TYPE_CHECKING

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from qedtrio.api.connection import Connection
from qedtrio.api.faults import split
from qedtrio.api.intake import RequestIds
from qedtrio.api.protocol import Environment
from qedtrio.config import HttpConfig

if TYPE_CHECKING:
    from hypercorn.typing import ASGIFramework

__all__ = ["Server", "serve_listener"]

PAUSES_SECONDS = (0.0, 0.05, 0.2, 1.0, 5.0)
"""Before each restart in a row; the last one repeats."""

HEALTHY_SECONDS = 60.0
"""A server that ran this long begins a new row."""

ORDERS = (trio.Cancelled, KeyboardInterrupt, SystemExit)
"""What no restart may answer."""

log = logging.getLogger(__name__)


async def serve_listener(  # noqa: ASYNC114, ASYNC128  # hands its task_status on
    app: "ASGIFramework",
    sock: socket.socket,
    http: HttpConfig,
    *,
    shutdown: trio.Event,
    grace_seconds: float,
    task_status: "trio.TaskStatus[Server]" = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on `sock` until `shutdown`; survive everything before.

    Cancellation ends it at once. The lifespan protocol is not spoken: what
    must live as long as the daemon belongs into the daemon's nurseries.

    Args:
        app: An ASGI application; its task is cancelled when its client goes.
        sock: Listening; stays open, and its owner closes it.
        http: Limits of each connection.
        shutdown: Set to end gracefully.
        grace_seconds: After `shutdown`, what is left is cut off.
        task_status: Started with the server once connections are accepted.
    """
    server = Server(app, http)
    failures = 0
    while not shutdown.is_set():
        started = trio.current_time()
        try:
            await server.serve(sock, shutdown, grace_seconds, task_status)
        except BaseException as error:  # noqa: ASYNC103  # goes on when fatal
            fatal, _ = split(error, *ORDERS)
            if fatal is not None:
                raise fatal from None  # noqa: ASYNC104  # it is the cancellation
            log.exception("The HTTP server failed")
        if trio.current_time() - started > HEALTHY_SECONDS:
            failures = 0
        with trio.move_on_after(PAUSES_SECONDS[failures]):
            await shutdown.wait()
        failures = min(failures + 1, len(PAUSES_SECONDS) - 1)


class Server:
    """Accepts connections and keeps count of them.

    Attributes:
        connections: Those being served.
    """

    def __init__(self, app: "ASGIFramework", http: HttpConfig) -> None:
        self._http = http
        self._app = app
        self.connections: set[Connection] = set()
        self._changed = trio.Event()
        self._is_started = False

    async def serve(
        self,
        sock: socket.socket,
        shutdown: trio.Event,
        grace_seconds: float,
        task_status: "trio.TaskStatus[Server]" = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept on a duplicate of `sock` until `shutdown`, then drain.

        Raises:
            Exception: Accepting failed; every connection has been closed.
        """
        environment = self._environment()
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock.dup()))
        async with trio.open_nursery() as serving:
            async with trio.open_nursery() as accepting:
                await accepting.start(
                    partial(
                        trio.serve_listeners,
                        partial(self._handle, environment),
                        [listener],
                        handler_nursery=serving,
                    )
                )
                if not self._is_started:
                    self._is_started = True
                    task_status.started(self)
                await shutdown.wait()
                accepting.cancel_scope.cancel()
            serving.cancel_scope.deadline = trio.current_time() + grace_seconds
            await environment.context.terminated.set()
            for connection in self.connections:
                connection.drain()

    def _environment(self) -> Environment:
        """What the connections of one round share."""
        return Environment(
            app=self._app,
            http=self._http,
            config=hypercorn_config(self._http),
            context=WorkerContext(None),
            request_ids=RequestIds(),
        )

    async def _handle(
        self, environment: Environment, stream: trio.SocketStream
    ) -> None:
        """Serve one connection, if there is room for it."""
        if len(self.connections) >= self._http.connections:
            log.warning("A connection was refused limit=%s", self._http.connections)
            return  # the listener closes it
        connection = Connection(stream, environment)
        connection.is_draining = environment.context.terminated.is_set()
        self.connections.add(connection)
        self._note_change()
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self._note_change()

    async def wait_connections(self, count: int) -> None:
        """Wait until exactly `count` connections are being served."""
        while len(self.connections) != count:
            await self._changed.wait()

    def _note_change(self) -> None:
        """Wake who waits for a number of connections."""
        self._changed.set()
        self._changed = trio.Event()


def hypercorn_config(http: HttpConfig) -> Config:
    """The few settings that the protocol itself reads."""
    config = Config()
    config.h11_max_incomplete_size = http.header_bytes
    config.keep_alive_max_requests = 2**63  # trainers keep theirs for days
    config.include_server_header = False
    config.websocket_max_message_size = http.body_bytes
    config.accesslog = None
    config.errorlog = log
    return config
