"""What is used of Hypercorn's insides; an upgrade that changes it fails here."""

import inspect
from importlib.metadata import version

import h11
import hypercorn.protocol.http_stream
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol, H11WSConnection
from hypercorn.trio.worker_context import WorkerContext


def parameters(function: object) -> list[str]:
    """Names of a function's parameters."""
    assert callable(function)
    return list(inspect.signature(function).parameters)


def test_minor_version_is_the_one_that_was_measured() -> None:
    """Its insides may change with every minor version."""
    assert version("hypercorn").startswith("0.18.")


def test_protocol_is_made_and_fed_as_expected() -> None:
    """`protocol.Http1` overrides and calls these."""
    made = ["self", "app", "config", "context", "task_group", "connection_state"]
    assert parameters(H11Protocol.__init__) == [
        *made,
        "ssl",
        "client",
        "server",
        "send",
    ]
    assert parameters(H11Protocol.handle) == ["self", "event"]
    assert parameters(H11Protocol.stream_send) == ["self", "event"]
    assert parameters(H11Protocol._check_protocol) == ["self", "event"]
    assert parameters(H11Protocol._create_stream) == ["self", "request"]
    assert parameters(H11Protocol._send_error_response) == ["self", "status_code"]
    assert parameters(H11Protocol._send_h11_event) == ["self", "event"]
    assert H11WSConnection.our_state is None


def test_protocol_waits_where_the_pause_stands_in() -> None:
    """`protocol.Pause` replaces `can_read`, `protocol.Parser` `connection`."""
    source = inspect.getsource(H11Protocol)
    assert "self.can_read = context.event_class()" in source
    assert "await self.can_read.wait()" in source
    assert "self.connection: h11.Connection | H11WSConnection" in source


def test_streams_start_applications_as_expected() -> None:
    """`protocol.Applications` stands in for the task group."""
    source = inspect.getsource(hypercorn.protocol.http_stream)
    call = "self.task_group.spawn_app(\n                    self.app, self.config, self.scope, self.app_send"
    assert call in source
    assert '{"type": "http.disconnect"}' in source


def test_events_and_settings_exist() -> None:
    """`connection` handles these three events, `server` sets these keys."""
    assert RawData(data=b"x").data == b"x"
    assert Updated(idle=True).idle
    assert isinstance(Closed(), Closed)
    for name in (
        "h11_max_incomplete_size",
        "keep_alive_max_requests",
        "include_server_header",
        "websocket_max_message_size",
        "accesslog",
        "errorlog",
    ):
        assert hasattr(Config, name), name
    assert not WorkerContext(None).terminated.is_set()


def test_h11_pauses_behind_a_last_request() -> None:
    """`protocol.Parser` relies on the state after `Connection: close`."""
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    parser.next_event()
    parser.next_event()
    assert parser.their_state is h11.MUST_CLOSE
