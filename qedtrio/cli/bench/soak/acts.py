"""What code is run in a soak, and how exactly each run must end.

Well-behaved code, code that fails in each way a run can fail, and code that
leaves processes behind. No process here makes others without a bound of its
own, since tier C and root bound nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ACTS", "COUNT", "LOOP", "NUMPY", "Act", "Ran", "Truncated", "find_flaw"]

BRIEF_SECONDS = 0.3
"""Deadline of what never ends; the code must have begun by then, on busy cores."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """What is read of the bytes left out of the output."""

    stdout_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RaisedError:
    """What is read of a run's error."""

    type: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """What is read of a RunResult."""

    status: str
    state: str
    stdout: str = ""
    stderr: str = ""
    error: RaisedError | None = None
    exit_code: int | None = None
    signal: int | None = None
    truncated: Truncated = Truncated()


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One run and what must come of it.

    Attributes:
        weight: How often it is drawn, compared with the others.
        status: The only one allowed.
        printed: Makes the exact stdout from the number of counted runs before
            it in this interpreter; None where it is not compared.
        lost: Whether the interpreter must be lost, rather than kept.
        raised: Type of the error, where there must be one.
        counts: Whether it adds one to the counter that the session keeps.
    """

    name: str
    weight: int
    code: str
    status: str = "ok"
    printed: Callable[[int], str] | None = None
    lost: bool = False
    raised: str | None = None
    exit_code: int | None = None
    truncated: bool = False
    counts: bool = False
    stdin: str = ""
    deadline_seconds: float = 30.0

    def body(self) -> dict[str, object]:
        """Make the body of the request."""
        return {
            "code": self.code,
            "stdin": self.stdin,
            "deadline_seconds": self.deadline_seconds,
        }


def printing(text: str) -> Callable[[int], str]:
    """Expect the same output whatever came before."""
    return lambda _: text


def find_flaw(act: Act, ran: Ran, counted: int) -> str:
    """Compare a result with what `act` must give.

    Args:
        act: What was run.
        ran: What came of it.
        counted: Counted runs before it in the same interpreter.

    Returns:
        What is wrong with it; empty when nothing is.
    """
    expected = {
        "status": (act.status, ran.status),
        "state": ("lost" if act.lost else "kept", ran.state),
        "exit_code": (act.exit_code, ran.exit_code),
        "truncated": (act.truncated, ran.truncated.stdout_bytes > 0),
    }
    if act.raised is not None:
        expected["error"] = (act.raised, ran.error.type if ran.error else None)
    if act.printed is not None:
        expected["stdout"] = (act.printed(counted), ran.stdout)
    flaws = [
        f"{name} is {brief(found)} instead of {brief(wanted)}"
        for name, (wanted, found) in expected.items()
        if wanted != found
    ]
    return "; ".join(flaws)


def brief(value: object) -> str:
    """Print a value, its middle left out where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:38]}…{text[-38:]}"


COUNT = Act(
    name="count",
    weight=30,
    code="n = globals().get('n', 0) + 1\nprint(n)",
    printed=lambda counted: f"{counted + 1}\n",
    counts=True,
)
"""Shows whether the interpreter is the one of the runs before."""

LOOPING = """
import sys
sys.stdout.write('begun\\n')  # in one piece: print writes the end apart
sys.stdout.flush()
while True: pass
"""

LOOP = Act(
    name="loop",
    weight=2,
    code=LOOPING,
    status="timed_out",
    printed=printing("begun\n"),
    raised="DeadlineExceeded",
    deadline_seconds=BRIEF_SECONDS,
)
"""An endless loop that an interrupt ends."""

NUMPY = Act(
    name="numpy",
    weight=10,
    code="import numpy\nprint(int(numpy.arange(100).sum()))",
    printed=printing("4950\n"),
)
"""Only where numpy is preloaded; importing it takes a quarter second."""

STUBBORN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass
"""

DAEMON = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if not os.fork():
    os.setsid()
    if not os.fork():
        os.environ.clear()
        while True: time.sleep(60)
    os._exit(0)
signal.signal(signal.SIGINT, signal.default_int_handler)
print('left')
"""

BOMB = """
import os, time
top = os.getpid()
for _ in range(3):
    try: os.fork()
    except OSError: pass
if os.getpid() != top:
    while True: time.sleep(60)
print('boom')
"""

ACTS = (
    COUNT,
    Act(
        name="raises",
        weight=10,
        code="import sys\nprint('before')\nprint('aside', file=sys.stderr)\n1 / 0",
        status="error",
        printed=printing("before\n"),
        raised="ZeroDivisionError",
    ),
    Act(
        name="reads_stdin",
        weight=5,
        code="print(int(input()) * 6)",
        stdin="7\n",
        printed=printing("42\n"),
    ),
    Act(
        name="shell",
        weight=2,
        code="import os\n_ = os.system('echo child')",
        printed=printing("child\n"),
    ),
    Act(
        name="megabyte",
        weight=2,
        code="print('x' * 1_000_000)",
        printed=printing("x" * 1_000_000 + "\n"),
    ),
    Act(
        name="too_much_output", weight=1, code="print('y' * 4_000_000)", truncated=True
    ),
    LOOP,
    Act(
        name="stubborn_loop",
        weight=1,
        code=STUBBORN,
        status="timed_out",
        lost=True,
        raised="DeadlineExceeded",
        deadline_seconds=BRIEF_SECONDS,
    ),
    Act(
        name="memory",
        weight=4,
        code="block = bytearray(1 << 44)",
        status="memory_exceeded",
    ),
    Act(
        name="sys_exit",
        weight=2,
        code="import sys\nprint('bye')\nsys.exit(4)",
        status="exited",
        printed=printing("bye\n"),
        lost=True,
        exit_code=4,
    ),
    Act(
        name="os_exit",
        weight=3,
        code="import os\nos._exit(3)",
        status="exited",
        lost=True,
        exit_code=3,
    ),
    Act(
        name="abort",
        weight=2,
        code="import os\nos.abort()",
        status="signalled",
        lost=True,
    ),
    Act(name="double_fork", weight=3, code=DAEMON, printed=printing("left\n")),
    Act(name="fork_bomb", weight=1, code=BOMB, printed=printing("boom\n")),
)
"""What any pool can run."""
