"""An answer of a fork server to the request for one worker."""

from collections.abc import Callable

import trio

from qedtrio.errors import WorkerStartError

__all__ = ["Answer", "host_pid"]


class Answer:
    """What the fork server says to one request; whoever made it waits."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._value: Callable[[], tuple[int, list[int]]] | None = None

    def resolve(self, pid: int, descriptors: list[int]) -> None:
        """Answer with a worker and its pidfds."""
        self._value = lambda: (pid, descriptors)
        self._event.set()

    def fail(self, reason: str) -> None:
        """Answer that there is none."""

        def raise_reason() -> tuple[int, list[int]]:
            raise WorkerStartError(reason)

        self._value = raise_reason
        self._event.set()

    async def wait(self) -> None:
        """Wait until the answer is there."""
        await self._event.wait()

    def value(self) -> tuple[int, list[int]]:
        """The answer that is there.

        Raises:
            WorkerStartError: With the reason.
        """
        assert self._value is not None
        return self._value()


def host_pid(pidfd: int, inner: int) -> int:
    """Ask the kernel for the process id that this side sees (proc_pid_fdinfo(5)).

    It is -1 once the process has been reaped.
    """
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as lines:  # noqa: PTH123
            for line in lines:
                if line.startswith("Pid:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return inner
