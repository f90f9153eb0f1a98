"""Listening sockets: TCP, unix, or handed over by systemd."""

import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from qedtrio.errors import ConfigError

__all__ = ["address_of", "open_socket"]

BACKLOG = 4096
"""Cut down by the kernel to net.core.somaxconn."""

FIRST_PASSED_FD = 3
"""SD_LISTEN_FDS_START of sd_listen_fds(3)."""

MAX_PORT = 65535

KEY = "listen.address"

# Inherited by accepted sockets: a peer that vanished without a word is noticed
# after about two minutes instead of never.
KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 120_000),
)


@asynccontextmanager
async def open_socket(
    address: str, environ: Mapping[str, str]
) -> AsyncIterator[socket.socket]:
    """Listen at `address` for the length of the block.

    Args:
        address: `host:port`, `unix:/path` (made for its owner alone, replaces
            a stale socket, removed at the end) or `fd:NAME`.
        environ: Where systemd's LISTEN_* variables are looked up.

    Raises:
        ConfigError: The address is malformed, taken, or was not handed over.
    """
    kind, _, rest = address.partition(":")
    if kind == "fd":
        with passed_socket(rest, environ) as sock:
            yield sock
    elif kind == "unix":
        path = Path(rest)
        with unix_socket(path) as sock:
            own = identity(path)
            try:
                yield sock
            finally:
                remove_own(path, own)
    else:
        with await tcp_socket(address) as sock:
            yield sock


def address_of(sock: socket.socket) -> str:
    """Where clients reach `sock`: an http URL, or `unix:` and the path."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def tcp_socket(address: str) -> socket.socket:
    """Listen on TCP.

    Raises:
        ConfigError: The address is malformed, unknown or taken.
    """
    host, colon, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and int(port) <= MAX_PORT
    if not colon or not host or not is_port:
        raise ConfigError(KEY, f"must be host:port, unix:/path or fd:NAME: {address!r}")
    try:
        found = await trio.socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )
    except OSError as error:
        raise ConfigError(KEY, f"cannot resolve {address!r}: {error}") from error
    family, kind, protocol, _, where = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        return listening(sock)
    except OSError as error:
        sock.close()
        raise ConfigError(KEY, f"cannot listen at {address!r}: {error}") from error


def unix_socket(path: Path) -> socket.socket:
    """Listen on a unix socket that only its owner may connect to.

    Raises:
        ConfigError: The path is taken, or cannot be made.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        remove_stale(path)
        sock.bind(str(path))
        path.chmod(0o600)  # before listen(): until then nobody can connect
        return listening(sock)
    except OSError as error:
        sock.close()
        raise ConfigError(KEY, f"cannot listen at {path}: {error}") from error
    except ConfigError:
        sock.close()
        raise


def remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens at any more.

    Raises:
        ConfigError: Somebody does, or it is no socket.
    """
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise ConfigError(KEY, f"{path} exists and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass  # a full backlog is somebody, too
    raise ConfigError(KEY, f"another process listens at {path}")


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of what stands at `path`, None for nothing."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def remove_own(path: Path, own: tuple[int, int] | None) -> None:
    """Remove our socket, unless a successor's stands there by now."""
    if identity(path) == own:
        path.unlink(missing_ok=True)


def passed_socket(name: str, environ: Mapping[str, str]) -> socket.socket:
    """Take over the socket that systemd passed under `name`.

    Raises:
        ConfigError: There is none, or it is no listening stream socket.

    Source: sd_listen_fds(3).
    """
    if environ.get("LISTEN_PID") != str(os.getpid()):
        raise ConfigError(KEY, f"fd:{name}: systemd passed no sockets to this process")
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    if names.count(name) != 1 or names.index(name) >= int(
        environ.get("LISTEN_FDS", "0")
    ):
        raise ConfigError(KEY, f"fd:{name}: not one of {', '.join(names)}")
    try:
        sock = socket.socket(fileno=FIRST_PASSED_FD + names.index(name))
        is_listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigError(KEY, f"fd:{name}: {error}") from error
    if not is_listening or sock.type != socket.SOCK_STREAM:
        raise ConfigError(KEY, f"fd:{name} is no listening stream socket")
    return listening(sock)


def listening(sock: socket.socket) -> socket.socket:
    """Make `sock` listen, with the options that its connections inherit."""
    if sock.family != socket.AF_UNIX:
        for level, option, value in KEEP_ALIVE:
            sock.setsockopt(level, option, value)
    sock.set_inheritable(False)
    sock.setblocking(False)
    sock.listen(BACKLOG)
    return sock
