"""What running code in a session means: values, streams, statuses, limits."""

import pytest
import trio

from qedtrio.errors import RequestError
from qedtrio.results import RunResult, RunStatus
from qedtrio.sandbox.tiers import Tier
from qedtrio.sessions.model import RunRequest, SessionOptions
from qedtrio.sessions.registry import Sessions
from tests.sessions.conftest import open_sessions

MIB = 1024 * 1024


async def run(sessions: Sessions, code: str, **fields: object) -> RunResult:
    """Run code in the session `s`."""
    with trio.fail_after(30):
        request = RunRequest(code=code, **fields)  # type: ignore[arg-type]  # the test's
        return await sessions.run("s", request)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("6 * 7", "42"),
        ("x = 5", None),
        ("None", None),
        ("(1 +\n 2)", "3"),
        ("5 * 7\n# done", "35"),
        ("x = 5; x", "5"),
        ("'abc'", "'abc'"),
        ("", None),
        ("# nothing", None),
        ("def f(n):\n return 1 if n < 2 else n * f(n - 1)\nf(5)", "120"),
        ("def g(): return 8\ndef h(): return g()\nh()", "8"),
        ("import math\ndef area(r): return math.pi * r\nround(area(1), 2)", "3.14"),
        ("n = 3\nsum(i * n for i in range(3))", "9"),
        ("formula = 42\nformula", "42"),
        ("L = [1]\nif len(L) > 5:\n    L.clear()\nL", "[1]"),
        ("class A: pass\nA.__module__", "'__main__'"),
        ("len(str(2 ** 20000))", "6021"),
        ("__name__", "'__main__'"),
        ("sorted(map(abs, [-2, 1]))", "[1, 2]"),
        ("'\\ud800'", r"'\ud800'"),
        ("from __future__ import annotations\ndef f(x: y): pass\nf.__annotations__", "{'x': 'y'}"),
        ("import pickle\nclass P: v = 1\npickle.loads(pickle.dumps(P())).v", "1"),
    ],
)  # fmt: skip
async def test_the_last_expression_is_the_result(
    sessions: Sessions, session: str, code: str, result: str | None
) -> None:
    """Evaluated once, in the one namespace that functions see too."""
    answer = await run(sessions, code)

    assert (answer.status, answer.result) == (RunStatus.OK, result)


async def test_the_last_expression_is_evaluated_once(
    sessions: Sessions, session: str
) -> None:
    """A side effect in it happens once, and `_` holds its value."""
    await run(sessions, "L = []")
    await run(sessions, "L.append(1)")
    await run(sessions, "6 * 7")

    assert (await run(sessions, "L, _")).result == "([1], 42)"


async def test_an_error_keeps_output_and_state_and_shows_user_lines(
    sessions: Sessions, session: str
) -> None:
    """The traceback has the code's own lines with numbers, and no others."""
    answer = await run(
        sessions, "x = 1\nprint('partial')\ndef f():\n    return 1 / 0\nf()"
    )

    assert answer.status is RunStatus.ERROR
    assert answer.stdout == "partial\n"
    assert answer.error is not None
    assert (answer.error.type, answer.error.message) == (
        "ZeroDivisionError",
        "division by zero",
    )
    assert "line 5" in answer.error.traceback
    assert "return 1 / 0" in answer.error.traceback
    assert "qedtrio" not in answer.error.traceback
    assert (await run(sessions, "x")).result == "1"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("def f(): f()\nf()", "RecursionError"),
        ("1 +", "SyntaxError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise ExceptionGroup('g', [ValueError('v')])", "ExceptionGroup"),
        ("class E(Exception):\n def __str__(self): raise OSError\nraise E", "E"),
        ("class R:\n def __repr__(self): raise KeyError('no')\nR()", "KeyError"),
        ("input()", "EOFError"),
        ("import json; json.loads('{')", "json.decoder.JSONDecodeError"),
        ("'a\\x00b'\n1 if", "SyntaxError"),
        ("import sys; sys.stdout = None; del sys.stderr; 1 / 0", "ZeroDivisionError"),
    ],
)
async def test_what_code_raises_is_an_error_with_its_type(
    sessions: Sessions, session: str, code: str, kind: str
) -> None:
    """However odd the exception, it is told and the session goes on."""
    answer = await run(sessions, code)

    assert answer.status is RunStatus.ERROR
    assert answer.error is not None
    assert answer.error.type == kind
    assert (await run(sessions, "print('on')")).stdout == "on\n"


@pytest.mark.parametrize(
    ("code", "status", "facts"),
    [
        ("import sys; sys.exit()", RunStatus.EXITED, {"exit_code": 0}),
        ("import sys; sys.exit('bye')", RunStatus.EXITED, {"exit_code": 1, "stderr": "bye\n"}),
        ("import os; os._exit(3)", RunStatus.EXITED, {"exit_code": 3}),
        ("import os; os.kill(os.getpid(), 9)", RunStatus.SIGNALLED, {"signal": 9}),
        ("import ctypes; ctypes.string_at(0)", RunStatus.SIGNALLED, {"signal": 11}),
    ],
    ids=["exit", "exit-text", "_exit", "kill", "segfault"],
)  # fmt: skip
async def test_an_end_of_the_interpreter_loses_the_state_only(
    sessions: Sessions,
    session: str,
    code: str,
    status: RunStatus,
    facts: dict[str, object],
) -> None:
    """The session goes on with a fresh interpreter, and the result says so."""
    answer = await run(sessions, "x = 1; " + code)

    assert (answer.status, answer.state) == (status, "lost")
    assert {name: getattr(answer, name) for name in facts} == facts
    after = await run(sessions, "'x' in globals()")
    assert (after.status, after.result) == (RunStatus.OK, "False")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("while True: pass", "kept"),
        ("import time; time.sleep(60)", "kept"),
        ("7 ** 10 ** 8", "kept"),
        ("import threading; threading.Lock().acquire() and threading.Event().wait()", "kept"),
        ("import subprocess; subprocess.run(['sleep', '60'])", "kept"),
        ("sum(range(10 ** 12))", "lost"),
        ("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)", "lost"),
    ],
    ids=["loop", "sleep", "power", "lock", "child", "c-loop", "ignores"],
)  # fmt: skip
async def test_a_deadline_ends_a_run_and_keeps_what_it_can(
    sessions: Sessions, session: str, code: str, state: str
) -> None:
    """Soft interrupt first; the overrun is at most a second; output stays."""
    await run(sessions, "x = 1")
    answer = await run(sessions, f"print('in')\n{code}", deadline_seconds=0.3)

    assert (answer.status, answer.state) == (RunStatus.TIMED_OUT, state)
    assert answer.stdout == "in\n"
    assert answer.wall_seconds < 0.3 + 1.0
    after = await run(sessions, "'x' in globals()")
    assert after.result == str(state == "kept")


async def test_memory_beyond_the_limit_is_refused_and_the_state_kept(
    sessions: Sessions, session: str
) -> None:
    """An allocation too large raises MemoryError in the code."""
    answer = await run(sessions, "x = 1\nb = bytearray(10 ** 10)")

    assert (answer.status, answer.state) == (RunStatus.MEMORY_EXCEEDED, "kept")
    assert (await run(sessions, "x")).result == "1"


async def test_long_output_is_cut_in_the_middle_and_counted(
    sessions: Sessions, session: str
) -> None:
    """Head and tail stay, the marker and `truncated` name what is missing."""
    answer = await run(sessions, "print('a' * 3_000_000 + 'z')")

    dropped = 3_000_002 - MIB
    assert answer.truncated.stdout_bytes == dropped
    assert f"… {dropped} bytes dropped …" in answer.stdout
    assert answer.stdout.startswith("aaa")
    assert answer.stdout.endswith("aaz\n")


async def test_output_that_is_no_utf8_is_replaced(
    sessions: Sessions, session: str
) -> None:
    """Bytes and lone surrogates come back as text, never as a failure."""
    answer = await run(
        sessions, "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe')\nprint('\\ud800')"
    )

    assert answer.status is RunStatus.OK
    assert answer.stdout == "\ufffd\ufffd\\ud800\n"


async def test_input_reads_stdin_then_ends(sessions: Sessions, session: str) -> None:
    """Each run has its own stdin."""
    answer = await run(sessions, "input(), input()", stdin="a\nb\n")

    assert answer.result == "('a', 'b')"
    assert (await run(sessions, "import sys; sys.stdin.read()")).result == "''"


async def test_threads_left_behind_are_reported(
    sessions: Sessions, session: str
) -> None:
    """A thread that outlives its run is counted."""
    answer = await run(
        sessions,
        "import threading\nstop = threading.Event()\n"
        "threading.Thread(target=stop.wait, daemon=True).start()",
    )

    assert answer.threads_left == 1


async def test_a_process_left_behind_cannot_write_into_the_next_run(
    sessions: Sessions, session: str
) -> None:
    """Each run has its own pipes; a late writer's go nowhere."""
    await run(
        sessions,
        "import os, time\nif os.fork() == 0:\n"
        "    for _ in range(10 ** 9): os.write(1, b'late')",
    )
    answer = await run(sessions, "print('mine')")

    assert answer.stdout == "mine\n"


async def test_a_child_that_falls_off_the_code_ends_there(
    sessions: Sessions, session: str
) -> None:
    """A fork of the interpreter never answers in its parent's name."""
    answer = await run(
        sessions, "import os\npid = os.fork()\npid and os.waitpid(pid, 0)[1]"
    )

    assert answer.result == "0"
    assert (await run(sessions, "1 + 1")).result == "2"


async def test_seeds_decide_the_draws(sessions: Sessions) -> None:
    """The same seed draws alike, no seed draws afresh."""
    draws = []
    for seed in (5, 5, None, None):
        info, _ = await sessions.create(None, SessionOptions(seed=seed))
        request = RunRequest(code="import random; random.random()")
        draws.append((await sessions.run(info.session_id, request)).result)

    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


async def test_lower_limits_hold_for_their_session(sessions: Sessions) -> None:
    """A session may ask for less, and gets it."""
    limits = {"memory_bytes": 300 * MIB, "output_bytes": 100, "deadline_seconds": 0.2}
    await sessions.create("s", SessionOptions(limits=limits))

    assert (await run(sessions, "bytearray(400 * 2 ** 20)")).status == "memory_exceeded"
    assert (await run(sessions, "print('x' * 200)")).truncated.stdout_bytes == 101
    assert (await run(sessions, "while True: pass")).status is RunStatus.TIMED_OUT


@pytest.mark.parametrize(
    "limits",
    [
        {"memory_bytes": 2**50},
        {"nonsense": 1},
        {"processes": 0},
        {"output_bytes": -1},
        {"deadline_seconds": float("nan")},
    ],
    ids=lambda limits: next(iter(limits)),
)
async def test_limits_out_of_range_are_refused_by_name(
    sessions: Sessions, limits: dict[str, float]
) -> None:
    """More than configured, unknown, or too little to live on."""
    with pytest.raises(RequestError, match=next(iter(limits))):
        await sessions.create("s", SessionOptions(limits=limits))

    assert sessions.statistics().live == 0


async def test_a_deadline_above_the_maximum_is_refused(
    sessions: Sessions, session: str
) -> None:
    """The configuration bounds what a request may ask for."""
    with pytest.raises(RequestError, match="deadline_seconds"):
        await run(sessions, "1", deadline_seconds=601)


async def test_too_much_output_can_end_the_run(host_tier: Tier, state_dir: str) -> None:
    """Where the policy is `kill`, the run is killed and named."""
    async with open_sessions(host_tier, state_dir, output_policy="kill") as (
        sessions,
        _,
    ):
        await sessions.create("s", SessionOptions())
        answer = await run(sessions, "while True: print('x' * 10_000)")

        assert (answer.status, answer.state) == (RunStatus.OUTPUT_EXCEEDED, "lost")
        assert (await run(sessions, "2")).result == "2"


async def test_output_arrives_while_the_code_runs(
    sessions: Sessions, session: str
) -> None:
    """Live parts come before the end, in order, with split characters whole."""
    parts: list[tuple[str, str]] = []
    first = trio.Event()

    def note(stream: str, text: str) -> None:
        parts.append((stream, text))
        if text.endswith("€"):
            first.set()

    code = (
        "import os\n"
        "print('begin')\n"
        "os.write(1, '€'.encode()[:1]); os.write(1, '€'.encode()[1:])\n"
        "import time\n"
        "while True: time.sleep(10)"
    )
    results: list[RunResult] = []
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def work() -> None:
                results.append(await sessions.run("s", RunRequest(code=code), note))

            nursery.start_soon(work)
            await first.wait()
            assert not results
            assert await sessions.interrupt("s")

    assert results[0].status is RunStatus.INTERRUPTED
    assert "".join(text for _, text in parts) == "begin\n€"
    assert results[0].stdout == "begin\n€"
