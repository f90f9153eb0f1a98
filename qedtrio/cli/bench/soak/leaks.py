"""The leak table: readings before, between and after, and what is growth. No I/O.

Everything that can be counted must not grow at all. Memory is allowed what is
known: a receipt for each closed session, which the daemon keeps (at most
100,000 of them), and the allocator's noise, which is not proportional to the
traffic; so whatever the second half adds beyond that is a trend and a leak.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

__all__ = ["LeakTable", "Reading", "Row", "leak_table"]

MIB = 1024 * 1024

NOISE_BYTES = 24 * MIB
"""Arenas, caches and buffers that traffic fills once, whatever its length."""

TREND_BYTES = 4 * MIB
"""Likewise for the second half alone, when all of them have been filled."""

RECEIPT_BYTES = 400
"""What the daemon remembers of a closed session: its id and why it closed."""

MEMORY = frozenset({"daemon_memory", "pool_memory"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a daemon holds when it has nothing to do; None where unreadable.

    Attributes:
        processes: Alive below the soak, the daemon and orphans among them.
        daemon_descriptors: Open in the daemon.
        pool_descriptors: Open in launchers and fork servers.
        daemon_memory: Anonymous resident bytes of the daemon.
        pool_memory: Likewise of launchers and fork servers.
        daemon_threads: Of the daemon, without those that Trio keeps for reuse
            and ends after ten idle seconds.
        folders: Entries in the state folder and beside it.
        cgroups: Control groups with the daemon's name in theirs.
        sessions: Live, starting or closing.
        orphans: Sessions whose worker does not die.
    """

    processes: int
    daemon_descriptors: int | None
    pool_descriptors: int | None
    daemon_memory: int | None
    pool_memory: int | None
    daemon_threads: int | None
    folders: int
    cgroups: int
    sessions: int
    orphans: int

    def exceeds(self, before: "Reading") -> bool:
        """Whether anything that can be counted is more, or less, than before."""
        return self.counts() != before.counts()

    def counts(self) -> Mapping[str, int | None]:
        """Everything but memory."""
        return {k: v for k, v in asdict(self).items() if k not in MEMORY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing over the whole soak.

    Attributes:
        middle: After the first half of the traffic.
        growth: From `before` to `after`; None where unreadable.
        allowed: Growth that is none.
        late_growth: From the larger of `before` and `middle` to `after`: an
            allocator gives back what it pleases in between.
        late_allowed: Likewise.
    """

    name: str
    before: int | None
    middle: int | None
    after: int | None
    growth: int | None
    allowed: int = 0
    late_growth: int | None = None
    late_allowed: int | None = None

    @property
    def is_leak(self) -> bool:
        """Whether there is more than is allowed."""
        if self.growth is not None and self.growth > self.allowed:
            return True
        late, most = self.late_growth, self.late_allowed
        return late is not None and most is not None and late > most


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakTable:
    """What grew, and what an ended daemon left.

    Attributes:
        left: Kind → number, of what is there after the daemon's end.
    """

    rows: list[Row]
    left: Mapping[str, int]

    @property
    def is_clean(self) -> bool:
        """Whether nothing leaked."""
        return not any(row.is_leak for row in self.rows) and not any(self.left.values())


def leak_table(
    before: Reading,
    middle: Reading,
    after: Reading,
    *,
    sessions: tuple[int, int],
    left: Mapping[str, int],
) -> LeakTable:
    """Compare three readings.

    Args:
        before: After the warm-up.
        middle: After the first half of the traffic.
        after: After the second.
        sessions: Opened in the first half and in the second.
        left: Of the daemon, after its end.
    """
    first, second = (number * RECEIPT_BYTES for number in sessions)
    rows = []
    for name, was in asdict(before).items():
        mid, now = getattr(middle, name), getattr(after, name)
        receipts = (first, second) if name == "daemon_memory" else (0, 0)
        in_memory = name in MEMORY
        rows.append(
            Row(
                name=name,
                before=was,
                middle=mid,
                after=now,
                growth=difference(now, was),
                allowed=NOISE_BYTES + sum(receipts) if in_memory else 0,
                late_growth=difference(now, larger(was, mid)),
                late_allowed=TREND_BYTES + receipts[1] if in_memory else None,
            )
        )
    return LeakTable(rows=rows, left=dict(left))


def difference(now: int | None, was: int | None) -> int | None:
    """Subtract, where both are known."""
    return None if now is None or was is None else now - was


def larger(one: int | None, other: int | None) -> int | None:
    """Choose the larger, where both are known."""
    return None if one is None or other is None else max(one, other)
