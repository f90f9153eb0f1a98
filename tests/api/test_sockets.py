"""Where the daemon listens."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from qedtrio.api.sockets import address_of, open_socket
from qedtrio.errors import ConfigError


async def test_port_zero_picks_a_free_one() -> None:
    """And the URL holds the real port."""
    async with open_socket("127.0.0.1:0", {}) as sock:
        assert address_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
        assert sock.getsockname()[1] > 0


async def test_ipv6_addresses_stand_in_brackets() -> None:
    """`[::1]:0` listens on IPv6."""
    async with open_socket("[::1]:0", {}) as sock:
        assert address_of(sock).startswith("http://[::1]:")


@pytest.mark.parametrize(
    "address",
    ["", "8733", ":1", "host:", "127.0.0.1:x", "127.0.0.1:99999", "fd:", "unix:"],
)
async def test_malformed_addresses_name_the_key(address: str) -> None:
    """Before anything is opened."""
    with pytest.raises(ConfigError, match=r"^listen\.address: "):
        async with open_socket(address, {}):
            pass


async def test_taken_port_is_refused() -> None:
    """With the address in the message."""
    async with open_socket("127.0.0.1:0", {}) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            async with open_socket(f"127.0.0.1:{port}", {}):
                pass


async def test_unix_socket_is_private_and_removed(tmp_path: Path) -> None:
    """Mode 0600 while it lives, gone afterwards."""
    path = tmp_path / "api.sock"
    async with open_socket(f"unix:{path}", {}) as sock:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert address_of(sock) == f"unix:{path}"
        (await trio.open_unix_socket(path)).socket.close()
    assert not path.exists()


async def test_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    """What a killed daemon left behind is no obstacle."""
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with open_socket(f"unix:{path}", {}):
        (await trio.open_unix_socket(path)).socket.close()


async def test_living_unix_socket_and_files_are_respected(tmp_path: Path) -> None:
    """Neither another daemon nor a file is pushed aside."""
    path = tmp_path / "api.sock"
    async with open_socket(f"unix:{path}", {}):
        with pytest.raises(ConfigError, match="another process listens"):
            async with open_socket(f"unix:{path}", {}):
                pass
        assert path.exists()
    path.write_text("precious")
    with pytest.raises(ConfigError, match="is no socket"):
        async with open_socket(f"unix:{path}", {}):
            pass
    assert path.read_text() == "precious"


async def test_successors_unix_socket_is_left_alone(tmp_path: Path) -> None:
    """A path that was taken over meanwhile is not removed at the end."""
    path = tmp_path / "api.sock"
    async with open_socket(f"unix:{path}", {}):
        path.rename(tmp_path / "moved.sock")
        successor = socket.socket(socket.AF_UNIX)
        successor.bind(str(path))
    assert path.exists()
    successor.close()


PASSED = """
import os, sys, socket, trio
from qedtrio.api.sockets import address_of, open_socket
os.dup2(int(sys.argv[3]), 3)
async def main():
    environ = {**os.environ, "LISTEN_PID": sys.argv[1] or str(os.getpid())}
    async with open_socket(sys.argv[2], environ) as sock:
        print(address_of(sock))
trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pid", "address", "accepted"),
    [("", "fd:api", True), ("1", "fd:api", False), ("", "fd:other", False)],
)
def test_socket_passed_by_systemd(pid: str, address: str, accepted: bool) -> None:
    """By name, and only when it was passed to this very process."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        done = subprocess.run(  # noqa: TID251  # no event loop here
            [sys.executable, "-c", PASSED, pid, address, str(sock.fileno())],
            env={**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "api"},
            pass_fds=[sock.fileno()],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    if accepted:
        assert done.stdout == f"http://127.0.0.1:{port}\n", done.stderr
    else:
        assert "ConfigError: listen.address: fd:" in done.stderr
