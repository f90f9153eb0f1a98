"""The leak table's arithmetic: what is growth, and what is none."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from qedtrio.cli.bench.soak.leaks import (
    MEMORY,
    NOISE_BYTES,
    RECEIPT_BYTES,
    TREND_BYTES,
    LeakTable,
    Reading,
    leak_table,
)
from qedtrio.cli.bench.soak.readings import own_cgroups, own_folders

QUIET = Reading(
    processes=26,
    daemon_descriptors=52,
    pool_descriptors=60,
    daemon_memory=40_000_000,
    pool_memory=200_000_000,
    daemon_threads=1,
    folders=4,
    cgroups=0,
    sessions=0,
    orphans=0,
)
NOTHING_LEFT = {"processes": 0, "folders": 0, "cgroups": 0}
COUNTED = [name for name in asdict(QUIET) if name not in MEMORY]


def table(
    middle: Reading = QUIET,
    after: Reading = QUIET,
    left: dict[str, int] | None = None,
    sessions: tuple[int, int] = (0, 0),
) -> LeakTable:
    """Compare with a quiet beginning."""
    return leak_table(
        QUIET, middle, after, sessions=sessions, left=left or NOTHING_LEFT
    )


def leaking(leaks: LeakTable) -> list[str]:
    """Name what leaks."""
    return [row.name for row in leaks.rows if row.is_leak]


def test_nothing_more_is_no_leak() -> None:
    """A daemon that is as it was is clean, and each thing has its row."""
    leaks = table()

    assert leaks.is_clean
    assert {row.name for row in leaks.rows} == set(asdict(QUIET))
    assert {row.growth for row in leaks.rows} == {0}


@pytest.mark.parametrize("name", COUNTED)
def test_one_more_of_anything_is_a_leak(name: str) -> None:
    """A planted process, descriptor, folder, thread or session turns it red."""
    planted = replace(QUIET, **{name: asdict(QUIET)[name] + 1})
    leaks = table(planted, planted)

    assert leaking(leaks) == [name]
    assert not leaks.is_clean


@pytest.mark.parametrize("name", COUNTED)
def test_one_less_is_no_leak(name: str) -> None:
    """A verify worker that is being replaced takes its things with it."""
    fewer = replace(QUIET, **{name: asdict(QUIET)[name] - 1})

    assert table(fewer, fewer).is_clean


def test_what_only_the_middle_had_is_no_leak() -> None:
    """The end decides."""
    assert table(middle=replace(QUIET, processes=99)).is_clean


@pytest.mark.parametrize("name", NOTHING_LEFT)
def test_what_an_ended_daemon_leaves_is_a_leak(name: str) -> None:
    """Processes, folders and control groups must end with it."""
    assert not table(left=NOTHING_LEFT | {name: 1}).is_clean


@pytest.mark.parametrize("name", sorted(MEMORY))
@pytest.mark.parametrize(
    ("early", "late", "leaks"),
    [
        (NOISE_BYTES, 0, False),
        (NOISE_BYTES + 1, 0, True),
        (0, TREND_BYTES, False),
        (0, TREND_BYTES + 1, True),
        (-TREND_BYTES, 2 * TREND_BYTES, False),
        (-TREND_BYTES, 2 * TREND_BYTES + 1, True),
    ],
)
def test_memory_may_fill_once_but_not_go_on_growing(
    name: str, early: int, late: int, *, leaks: bool
) -> None:
    """Noise comes with the first half; more in the second one is a trend."""
    was = asdict(QUIET)[name]
    middle = replace(QUIET, **{name: was + early})
    after = replace(QUIET, **{name: was + early + late})

    assert leaking(table(middle, after)) == [name] * leaks


@pytest.mark.parametrize(("extra", "leaks"), [(0, False), (1, True)])
def test_receipts_of_closed_sessions_are_no_leak(extra: int, *, leaks: bool) -> None:
    """The daemon remembers a closed session; so much is allowed, and no more."""
    half = 50_000 * RECEIPT_BYTES
    middle = replace(QUIET, daemon_memory=40_000_000 + half)
    after = replace(QUIET, daemon_memory=40_000_000 + 2 * half + TREND_BYTES + extra)

    found = table(middle, after, sessions=(50_000, 50_000))
    assert leaking(found) == ["daemon_memory"] * leaks


def test_what_cannot_be_read_is_not_called_clean_of_growth() -> None:
    """It has no figure rather than a zero."""
    blind = replace(QUIET, pool_descriptors=None)
    (row,) = [r for r in table(blind, blind).rows if r.name == "pool_descriptors"]

    assert row.growth is None


def test_folders_are_counted_two_levels_deep(tmp_path: Path) -> None:
    """The state folder itself, and the pools' roots and workers' folders in it."""
    assert own_folders(tmp_path) == 0
    (tmp_path / "qedtrio-x" / "root-1" / "deep").mkdir(parents=True)
    (tmp_path / "qedtrio-x" / "work-2").mkdir()

    assert own_folders(tmp_path) == 3
    assert own_folders(tmp_path / "none") == 0


def test_control_groups_are_told_by_the_daemons_id(tmp_path: Path) -> None:
    """Another daemon's groups are not counted, nor one whose id holds ours."""
    for name in ("worker-123-1", "worker-123-2", "worker-1234-1", "worker-7-3"):
        (tmp_path / "service" / name).mkdir(parents=True)

    assert own_cgroups(123, tmp_path) == 2
