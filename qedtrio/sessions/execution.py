"""One run on a worker: dispatch, deadline, interrupt, kill, and what came of it.

At the deadline, and when the asking task is cancelled, the code gets a soft
interrupt, which keeps the interpreter's state; code that does not react is
killed with its worker. What the code did is always a result; only what we or
the host did is an exception.
"""

import itertools
import os
import secrets
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import trio

from qedtrio.config import Limits
from qedtrio.errors import BrokenWorkerError, WorkerError, WorkerLostError
from qedtrio.results import RunError, RunResult, RunStatus, Truncated
from qedtrio.sessions.limits import run_deadline
from qedtrio.sessions.model import OnOutput, OutputStream, RunRequest
from qedtrio.workers.child.protocol import Message, reply_size
from qedtrio.workers.life import STATUS_SECONDS
from qedtrio.workers.output import Capture
from qedtrio.workers.watched import Ending
from qedtrio.workers.worker import Worker

__all__ = ["Execution"]

INTERRUPTS = 3
QUICK_SECONDS = 0.003
"""A run shorter than this costs the daemon one wake-up."""
INTERRUPT_SECONDS = 0.28
"""Between interrupts; subprocess.run holds one back for a quarter second."""

STREAMS: tuple[OutputStream, OutputStream] = ("stdout", "stderr")

_PREFIX = uuid.uuid4().hex[:12]
_NUMBERS = itertools.count(1)


def fresh_run_id() -> str:
    """Name a run whose client did not; unique across restarts."""
    return f"{_PREFIX}-{next(_NUMBERS)}"


CHANNEL_BROKEN = Ending(
    status=RunStatus.SIGNALLED,
    kind="ControlChannelBroken",
    message="the code wrote to the worker's own channel",
    signal=signal.SIGKILL,
)
OUT_OF_MEMORY = Ending(
    status=RunStatus.MEMORY_EXCEEDED,
    kind="HostMemoryExceeded",
    message="the host ran out of memory, and its kernel killed the interpreter",
)


class _OutputExceededError(Exception):
    """The run printed more than it may, where that kills it."""


@dataclass(slots=True, kw_only=True)
class Execution:
    """One run, from its dispatch to its result.

    Args:
        worker: Leased, and idle.
        request: What to run.
        configured: The daemon's limits.
        limits: The session's.
        arrived: Trio-clock time of the request, before it waited its turn.
        on_output: Live delivery, at most `output_bytes` of each stream.

    Attributes:
        started: Trio-clock time of the dispatch.
        interrupted: Whether somebody asked for its end.
        ending: Why, where it was the watch.
        finished: Set once its worker is done with it.

    Raises:
        RequestError: The deadline asked for is longer than configured.
    """

    worker: Worker
    request: RunRequest
    configured: Limits
    limits: Mapping[str, float]
    arrived: float
    on_output: OnOutput | None = None
    interrupted: bool = False
    ending: Ending | None = None
    finished: trio.Event = field(default_factory=trio.Event)
    started: float = field(default_factory=trio.current_time)
    deadline_seconds: float = field(init=False)
    _captures: tuple[Capture, Capture] = field(init=False)
    # A process that an earlier run left behind may still hold the channel; it
    # cannot know this, so it cannot answer for a later run.
    _token: str = field(init=False, default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        """Work out the deadline, and make room for the output."""
        asked = self.request.deadline_seconds
        self.deadline_seconds = run_deadline(self.configured, self.limits, asked)
        size = int(self.limits["output_bytes"])
        self._captures = (Capture(size), Capture(size))
        self.worker.reply_bytes = reply_size(int(self.limits["result_bytes"]))

    async def run(self) -> RunResult:
        """Run the code and wait for its end, at most a second past its deadline.

        Cancellation interrupts the code first, so that the state survives
        where it can; the worker is dead otherwise.

        Raises:
            WorkerLostError: The worker died by no act of the code.
            ReleaseFailedError: A killed worker does not die.
        """
        self.worker.watched.begin(self)
        try:
            if self.worker.watched.ending is not None:  # since the run before
                return await self._explain_death()
            return await self._converse()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                if await self._interrupt() is None:
                    await self.worker.kill()
            raise
        except _OutputExceededError:
            return await self._kill(self._output_ending())
        except BrokenWorkerError:
            # Our own side of the channel sends nothing else: the code found it.
            return await self._kill(CHANNEL_BROKEN)
        except WorkerLostError:
            return await self._explain_death()
        finally:
            self.worker.watched.run = None
            self.worker.close_pipes()
            self.finished.set()

    async def interrupt(self) -> bool:
        """Interrupt the code from another task; whether it ended."""
        self.interrupted = True
        for _ in range(INTERRUPTS):
            self.worker.interrupt()
            with trio.move_on_after(INTERRUPT_SECONDS):
                await self.finished.wait()
                return True
        return self.finished.is_set()

    async def end(self, ending: Ending) -> bool:
        """Interrupt the code for a reason that its result tells; likewise."""
        self.ending = ending
        return await self.interrupt()

    async def _converse(self) -> RunResult:
        end = self.started + self.deadline_seconds
        if rest := self._dispatch():
            with trio.CancelScope(deadline=end):
                await self.worker.send_rest(rest)
        if self.on_output is None:
            # Most runs are short: until then no output is worth a wake-up.
            with trio.CancelScope(deadline=min(end, self.started + QUICK_SECONDS)):
                return self._conclude(self._settle(await self.worker.receive_soon()))
        with trio.CancelScope(deadline=end):
            return self._conclude(await self._receive())
        reply = await self._interrupt()
        if reply is None:
            return await self._kill(self._deadline_ending(", nor after an interrupt"))
        self.ending = self._deadline_ending()
        return self._conclude(reply)

    def _deadline_ending(self, more: str = "") -> Ending:
        return Ending(
            status=RunStatus.TIMED_OUT,
            kind="DeadlineExceeded",
            message=f"no end within {self.deadline_seconds:g} s{more}",
        )

    def _output_ending(self) -> Ending:
        return Ending(
            status=RunStatus.OUTPUT_EXCEEDED,
            kind="OutputLimitExceeded",
            message="more output than the limit of"
            f" {self.limits['output_bytes']:g} bytes",
        )

    def _dispatch(self) -> memoryview:
        message: Message = {
            "op": "run",
            "token": self._token,
            "code": self.request.code,
            "stdin": self.request.stdin,
        }
        writers = self.worker.open_pipes()
        try:
            return self.worker.send_nowait(message, writers)
        finally:
            for writer in writers:
                os.close(writer)

    async def _receive(self) -> Message:
        return self._settle(await self.worker.receive(self._captures, self._take_part))

    def _settle(self, reply: Message) -> Message:
        """Take in what the pipes hold at the end of the run."""
        self.worker.close_pipes(self._captures, self._take_part)
        return reply

    def _take_part(self, index: int, data: bytes) -> None:
        self._deliver_part(index, data)
        if self.configured.output_policy == "kill":
            capture = self._captures[index]
            if capture.total_bytes > self.limits["output_bytes"]:
                raise _OutputExceededError

    def _deliver_part(self, index: int, data: bytes) -> None:
        capture = self._captures[index]
        # What the result will drop is not streamed either, past the limit.
        seen = capture.total_bytes - len(data)
        if self.on_output is None or seen >= self.limits["output_bytes"]:
            return
        if text := capture.decode_part(data):
            self.on_output(STREAMS[index], text)

    async def _interrupt(self) -> Message | None:
        """Ask the code to stop; None when it does not."""
        for _ in range(INTERRUPTS):
            self.worker.interrupt()
            with trio.move_on_after(INTERRUPT_SECONDS):
                try:
                    return await self._receive()
                except (WorkerError, _OutputExceededError):
                    return None
        return None

    async def _kill(self, ending: Ending) -> RunResult:
        await self.worker.kill()
        return self._lost(ending)

    def _lost(self, ending: Ending) -> RunResult:
        said = RunError(type=ending.kind, message=ending.message, traceback="")
        return self._result(
            ending.status, error=said, signal=ending.signal, state="lost"
        )

    async def _explain_death(self) -> RunResult:
        """Turn the exit status of a worker, or who killed it, into a result."""
        with trio.move_on_after(2 * STATUS_SECONDS):
            await self.worker.gone.wait()
        self.worker.close_pipes(self._captures, self._deliver_part)
        await self.worker.kill()  # what it left behind
        if (ending := self.worker.watched.ending) is not None:
            return self._lost(ending)
        status = self.worker.exit_status
        if status is None:
            raise WorkerLostError("the worker died, and nobody knows of what")
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL and self.worker.watched.was_oom_killed():
            return self._lost(OUT_OF_MEMORY)
        if code < 0:
            return self._result(RunStatus.SIGNALLED, signal=-code, state="lost")
        return self._result(RunStatus.EXITED, exit_code=code, state="lost")

    def _conclude(self, reply: Message) -> RunResult:
        if reply.get("token") != self._token:
            raise BrokenWorkerError("a reply that answers no request of ours")
        try:
            status = RunStatus(cast("str", reply["status"]))
            error = _read_error(reply.get("error"))
        except (KeyError, TypeError, ValueError) as problem:
            raise BrokenWorkerError(f"a reply without sense: {problem}") from problem
        if self.ending is not None:
            status = self.ending.status
            trace = error.traceback if error else ""
            error = RunError(
                type=self.ending.kind, message=self.ending.message, traceback=trace
            )
        elif status is RunStatus.INTERRUPTED and not self.interrupted:
            status = RunStatus.ERROR  # the code sent itself a SIGINT
        exited = status is RunStatus.EXITED
        condemned = self.worker.watched.ending is not None  # it just got its end in
        return self._result(
            status,
            result=_text_or_none(reply.get("result")),
            error=error,
            exit_code=int(_number(reply.get("exit_code"))) if exited else None,
            state="lost" if exited or condemned else "kept",
            cpu_seconds=_number(reply.get("cpu_seconds")),
            peak_memory_bytes=int(_number(reply.get("peak_memory_bytes"))),
            threads_left=int(_number(reply.get("threads_left"))),
        )

    def _result(self, status: RunStatus, **facts: object) -> RunResult:
        out, err = self._captures
        return RunResult(
            run_id=self.request.run_id or fresh_run_id(),
            status=status,
            stdout=out.text(),
            stderr=err.text(),
            truncated=Truncated(
                stdout_bytes=out.dropped_bytes, stderr_bytes=err.dropped_bytes
            ),
            wall_seconds=trio.current_time() - self.started,
            queue_seconds=self.started - self.arrived,
            **facts,  # type: ignore[arg-type]  # named and typed by our own callers
        )


# A reply comes from where hostile code ran: nothing in it is taken on trust.


def _read_error(error: object) -> RunError | None:
    if not isinstance(error, dict):
        return None
    return RunError(
        type=str(error["type"]),
        message=str(error["message"]),
        traceback=str(error["traceback"]),
    )


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
