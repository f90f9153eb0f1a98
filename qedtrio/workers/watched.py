"""What the watch must know of a worker, and how it says why it ended one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from qedtrio.results import RunStatus
from qedtrio.sandbox.cgroups import Cgroup

__all__ = ["Ending", "Watched", "WatchedRun", "count_oom_kills"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why a run is ended from outside, in the words that its client reads.

    Attributes:
        status: Of the run's result.
        kind: `error.type` of the result.
        message: `error.message` of the result.
        signal: For `signalled`.
    """

    status: RunStatus
    kind: str
    message: str
    signal: int | None = None


class WatchedRun(Protocol):
    """A run in progress.

    Attributes:
        started: Trio-clock time of its dispatch.
        ending: Set once somebody ends it.
    """

    started: float
    ending: Ending | None

    async def end(self, ending: Ending) -> bool:
        """Interrupt the code; whether it ended, within a second."""


@dataclass(slots=True, kw_only=True)
class Watched:
    """One worker's part in the watch.

    Attributes:
        first_pid: Host process id of its namespace's first process (tier A).
        limits: Of its lease; empty for who keeps limits of his own.
        run: The run it is busy with.
        runs: How many it has begun.
        ending: Why the watch killed it; its run's result says so, or else the
            next run of its session.
        oom_kills: Kills by the kernel for want of memory, up to the last look.
        cgroup: Its own, where control groups were delegated.
    """

    first_pid: int | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    run: WatchedRun | None = None
    runs: int = 0
    ending: Ending | None = None
    oom_kills: int = field(default_factory=lambda: count_oom_kills())
    cgroup: Cgroup | None = None
    _killed_in_group: int = 0

    def begin(self, run: WatchedRun) -> None:
        """Note a run that is dispatched now."""
        self.run = run
        self.runs += 1

    def was_oom_killed(self) -> bool:
        """Whether the kernel killed for memory since the last look.

        The host's counter does not say whom; a worker that died of a SIGKILL
        that nobody here sent within the same second was most likely it.
        """
        return bool(self._killed_in_group) or count_oom_kills() > self.oom_kills

    def strike(self) -> None:
        """Kill all of its control group; a no-op without one."""
        if self.cgroup is not None:
            self.cgroup.kill()

    def bury(self) -> None:
        """Remove its control group, and keep what it tells; else a no-op."""
        if self.cgroup is not None:
            self._killed_in_group = self.cgroup.oom_kills()
            self.cgroup.remove()


def count_oom_kills(path: str = "/proc/vmstat") -> int:
    """Read how often the kernel killed for want of memory since the boot."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except OSError:
        return 0
    _, _, rest = text.partition("\noom_kill ")
    return int(rest.partition("\n")[0] or 0)
