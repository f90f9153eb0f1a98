"""The host's memory: what sessions use of it, and when no more are admitted."""

import time
from pathlib import Path

from qedtrio.sandbox.cgroups import memory_ceiling

__all__ = ["MemoryGate", "free_bytes"]

SHARE = 0.8
"""Of the host's memory, or of our control group's, for sessions."""
ADMIT_SHARE = 0.9
"""Of that, beyond which only what runs already may grow."""
FRESH_SECONDS = 0.2


def free_bytes(path: str = "/proc/meminfo") -> float:
    """Memory that could be had without swapping; endless where not told."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except OSError:
        return float("inf")
    _, found, rest = text.partition("\nMemAvailable:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else float("inf")


class MemoryGate:
    """Says whether there is memory for one session more.

    Args:
        total_bytes: For all sessions; 0 for a share of what there is.
        floor_bytes: What the host must keep available.

    Attributes:
        used_bytes: By all sessions, as the watch last found.
    """

    def __init__(self, total_bytes: float, floor_bytes: float) -> None:
        self.total_bytes = total_bytes or SHARE * memory_ceiling()
        self.floor_bytes = floor_bytes
        self.used_bytes = 0.0
        self._free = float("inf")
        self._read_at = float("-inf")

    def refusal(self) -> str:
        """Why nothing more is admitted now; empty when something is."""
        if self.used_bytes > ADMIT_SHARE * self.total_bytes:
            return "the sessions use nearly all memory meant for them"
        if time.monotonic() - self._read_at > FRESH_SECONDS:
            self._free, self._read_at = free_bytes(), time.monotonic()
        if self._free < self.floor_bytes:
            return "the host is short of memory"
        return ""

    def excess(self) -> str:
        """Why the biggest session must go; empty while all may stay."""
        if self.used_bytes > self.total_bytes:
            return (
                "all sessions together used more than the limit of"
                f" {self.total_bytes:.0f} bytes"
            )
        if free_bytes() < self.floor_bytes / 2:
            return (
                "the host had less memory available than half of the"
                f" {self.floor_bytes:.0f} bytes it must keep"
            )
        return ""
