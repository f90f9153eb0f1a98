"""What an earlier run left behind stays out of a later one, and sessions apart."""

import pytest
import trio

from qedtrio.results import RunResult, RunStatus
from qedtrio.sandbox.tiers import Tier
from qedtrio.sessions.model import RunRequest, SessionOptions
from qedtrio.sessions.registry import Sessions
from tests.sessions.conftest import open_sessions


async def run(sessions: Sessions, code: str, name: str = "s") -> RunResult:
    """Run code in a session."""
    with trio.fail_after(30):
        return await sessions.run(name, RunRequest(code=code))


STRAY_THREAD = """
import ctypes, os, sys, threading
go, written = threading.Event(), threading.Event()
libc = ctypes.CDLL(None)
def write_late():
    go.wait()
    try:
        print("print of a stray", flush=True)
        print("error of a stray", file=sys.stderr, flush=True)
        os.write(1, b"descriptor of a stray\\n")
        libc.dprintf(1, b"C code of a stray\\n")
        os.system("echo child of a stray")
    finally:
        written.set()
threading.Thread(target=write_late, daemon=True).start()
"""


async def test_a_thread_left_behind_cannot_write_into_a_later_run(
    sessions: Sessions, session: str
) -> None:
    """Neither through Python's streams nor through descriptors, C code or children."""
    first = await run(sessions, STRAY_THREAD)
    second = await run(sessions, "go.set(); written.wait(20); print('mine')")

    assert first.threads_left == 1
    assert (second.stdout, second.stderr) == ("mine\n", "")


async def test_an_executor_serves_later_runs(sessions: Sessions, session: str) -> None:
    """Threads of an earlier run compute and read files; only their output is lost."""
    await run(
        sessions,
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1)\n"
        "open('data', 'w').write('seven')\n"
        "pool.submit(len, 'ab').result()",
    )
    answer = await run(
        sessions,
        "import pathlib\n"
        "pool.submit(lambda: pathlib.Path('data').read_text()).result(20)",
    )

    assert answer.result == "'seven'"


async def test_a_thread_of_this_run_is_heard(sessions: Sessions, session: str) -> None:
    """Also when threads of earlier runs are still about."""
    await run(sessions, STRAY_THREAD)
    answer = await run(
        sessions,
        "t = threading.Thread(target=print, args=('heard',)); t.start(); t.join()",
    )

    assert answer.stdout == "heard\n"


async def test_a_forked_child_has_no_channel_to_the_daemon(
    sessions: Sessions, session: str
) -> None:
    """A child that outlives its run could else answer for a later one."""
    answer = await run(
        sessions,
        "import os\n"
        "if os.fork() == 0:\n"
        "    try: os.fstat(3); print('open')\n"
        "    except OSError as e: print(e.strerror)\n"
        "    os._exit(0)\n"
        "os.wait()[1]",
    )

    assert (answer.stdout, answer.result) == ("Bad file descriptor\n", "0")


FORGERY = """
import ctypes, json, os, struct
told, tell = os.pipe()
wrote, write = os.pipe()
if ctypes.CDLL(None).fork() == 0:  # passes by what os.fork does
    os.read(told, 1)
    body = json.dumps({"op": "done", "status": "ok", "result": "'forged'"}).encode()
    os.write(3, struct.pack(">I", len(body)) + body)
    os.write(write, b"x")
    os._exit(0)
"""


async def test_a_process_left_behind_cannot_answer_for_a_later_run(
    sessions: Sessions, session: str
) -> None:
    """A reply that does not know this run's token ends the worker, and says so."""
    await run(sessions, FORGERY)
    answer = await run(sessions, "os.write(tell, b'x'); os.read(wrote, 1); 'mine'")
    after = await run(sessions, "1 + 1")

    assert answer.status is RunStatus.SIGNALLED
    assert answer.error is not None
    assert answer.error.type == "ControlChannelBroken"
    assert after.result == "2"


async def test_a_worker_cannot_fill_the_daemon_with_a_reply(
    sessions: Sessions, session: str
) -> None:
    """A message longer than any result is refused at its header."""
    answer = await run(
        sessions, "import os\nos.write(3, b'\\x03\\xff\\xff\\xff')\nwhile True: pass"
    )

    assert answer.status is RunStatus.SIGNALLED
    assert answer.error is not None
    assert answer.error.type == "ControlChannelBroken"
    assert answer.wall_seconds < 5


async def test_the_longest_result_arrives(host_tier: Tier, state_dir: str) -> None:
    """The bound on replies leaves room for a result that escapes badly."""
    size = 2 << 20
    async with open_sessions(host_tier, state_dir, result_bytes=size) as (sessions, _):
        with trio.fail_after(20):
            await sessions.create("s", SessionOptions())
        code = f"class R:\n def __repr__(self): return '\\1' * {size}\nR()"
        answer = await run(sessions, code)

    assert answer.result == "\1" * size


@pytest.mark.parametrize("folder", [".", "/tmp", "/dev/shm"])
async def test_sessions_share_no_files(
    sessions: Sessions, session: str, folder: str
) -> None:
    """What one writes another does not find."""
    with trio.fail_after(20):
        await sessions.create("other", SessionOptions())
    wrote = await run(sessions, f"open('{folder}/mark', 'w').write('x')")
    found = await run(sessions, f"import os; os.listdir('{folder}')", name="other")

    assert wrote.status in {
        RunStatus.OK,
        RunStatus.ERROR,
    }  # tier B has no shared memory
    assert "mark" not in (found.result or "")


async def test_sessions_draw_differently(sessions: Sessions, session: str) -> None:
    """No random generator starts where a sibling's does."""
    with trio.fail_after(20):
        await sessions.create("a", SessionOptions())
        await sessions.create("b", SessionOptions())
    code = "import random, uuid, os; (random.random(), uuid.uuid4(), os.urandom(4))"
    draws = [await run(sessions, code, name) for name in ("a", "b")]

    assert draws[0].result != draws[1].result
