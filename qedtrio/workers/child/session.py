"""A session worker: one interpreter state, one run at a time.

The namespace is a real `__main__` module. SIGINT raises KeyboardInterrupt
only while user code runs, so an interrupt that comes late hits nothing.
"""

import builtins
import os
import resource
import signal
import sys
import threading
import time
import types
from pathlib import Path
from typing import NoReturn, cast

from qedtrio.sandbox.rlimits import apply_limits
from qedtrio.workers.child import cell, seeds, strays
from qedtrio.workers.child.channel import Channel
from qedtrio.workers.child.protocol import Message
from qedtrio.workers.child.streams import Streams

__all__ = ["serve"]

INT_DIGITS = 1_000_000
"""Digits of the longest integer that turns into text; Python's default is 4300."""


class _Running:
    """Whether user code has the thread, and whether a SIGINT reached it."""

    def __init__(self) -> None:
        self.now = False
        self.interrupted = False

    def on_interrupt(self, *_: object) -> None:
        if self.now:
            self.interrupted = True
            raise KeyboardInterrupt


def serve(channel: Channel) -> None:
    """Serve a session's requests until the daemon hangs up."""
    session = _Session()
    # What the code forks has no business with the daemon.
    os.register_at_fork(after_in_child=channel.close)
    while True:
        request, descriptors = channel.receive()
        match request["op"]:
            case "run":
                channel.send(session.run(request, descriptors))
            case "lease":
                session.lease(request)
                channel.send({"op": "done"})
            case "write":
                channel.send(_write_files(cast("dict[str, str]", request["files"])))
            case _:
                channel.send({"op": "done"})


def _write_files(files: dict[str, str]) -> Message:
    """Write text files below the working folder."""
    here, name = Path.cwd(), ""
    try:
        for name, text in files.items():
            path = here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        return {"op": "failed", "error": f"{name}: {error.strerror}"}
    return {"op": "done"}


class _Session:
    def __init__(self) -> None:
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        sys.argv = [""]
        sys.set_int_max_str_digits(INT_DIGITS)
        self._namespace = main.__dict__
        self._running = _Running()
        self._streams = Streams()
        self._runs = 0
        self._threads = threading.active_count()
        self._result_bytes = 65536
        self._cpu_seconds = 0.0

    def lease(self, request: Message) -> None:
        """Take the session's limits and seed; there is one lease in a life."""
        limits = cast("dict[str, float]", request["limits"])
        self._result_bytes = int(limits["result_bytes"])
        apply_limits(limits)
        seeds.seed_generators(cast("int | None", request["seed"]))
        self._read_usage()

    def run(self, request: Message, descriptors: list[int]) -> Message:
        """Execute one run and describe how it ended."""
        self._runs += 1
        process = os.getpid()
        started = time.perf_counter()
        self._running.interrupted = False
        signal.signal(signal.SIGINT, self._running.on_interrupt)
        self._streams.open(descriptors, cast("str", request["stdin"]))
        try:
            outcome = self._execute(cast("str", request["code"]))
        except KeyboardInterrupt:  # between the code's end and our noticing
            outcome = {"status": "interrupted"}
        if os.getpid() != process:
            self._leave_fork(outcome)
        self._streams.close()
        strays.leave_descriptors()
        return {
            "op": "done",
            "token": request.get("token"),
            **outcome,
            "wall_seconds": time.perf_counter() - started,
            **self._read_usage(),
            "threads_left": max(0, threading.active_count() - self._threads),
        }

    def _read_usage(self) -> Message:
        """Processor time since the last reading, children's included, and peak."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        used, self._cpu_seconds = total - self._cpu_seconds, total
        return {"cpu_seconds": used, "peak_memory_bytes": own.ru_maxrss * 1024}

    def _execute(self, code: str) -> Message:
        try:
            try:
                self._running.now = True
                text = cell.execute(
                    code, self._namespace, self._runs, self._result_bytes
                )
            finally:
                self._running.now = False
        except KeyboardInterrupt as error:
            if self._running.interrupted:
                return {"status": "interrupted", "error": cell.describe(error)}
            return {"status": "error", "error": cell.describe(error)}
        except SystemExit as error:
            return {"status": "exited", "exit_code": _exit_code(error.code)}
        except MemoryError as error:
            return {"status": "memory_exceeded", "error": cell.describe(error)}
        except BaseException as error:
            return {"status": "error", "error": cell.describe(error)}
        return {"status": "ok", "result": text}

    def _leave_fork(self, outcome: Message) -> NoReturn:
        """End a child that the code forked and that fell out of its end."""
        self._streams.close()
        os._exit(cast("int", outcome.get("exit_code", outcome["status"] != "ok")))


def _exit_code(code: object) -> int:
    """Turn what `sys.exit` got into a status, printing what is no number."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    os.write(2, cell.clean(str(code)).encode() + b"\n")
    return 1
