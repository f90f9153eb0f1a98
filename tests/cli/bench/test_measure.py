"""Percentiles and ratios."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qedtrio.cli.bench.measure import measurement, percentile, with_ratios

SAMPLES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


@given(samples=SAMPLES, percent=st.integers(1, 100))
def test_percentile_is_the_smallest_sample_that_covers(
    samples: list[float], percent: int
) -> None:
    """At least the fraction is not above it, and no smaller sample does that."""
    found = percentile(sorted(samples), percent / 100)

    assert found in samples
    covered = sum(sample <= found for sample in samples) * 100
    assert covered >= percent * len(samples)
    below = sum(sample < found for sample in samples) * 100
    assert below < percent * len(samples)


@pytest.mark.parametrize(
    ("count", "fraction", "expected"),
    [(1, 0.5, 1), (2, 0.5, 1), (10, 0.9, 9), (100, 0.99, 99), (101, 0.99, 100)],
)
def test_percentile_of_one_to_n(count: int, fraction: float, expected: int) -> None:
    """Of 1…n the nearest rank is its own value."""
    assert percentile(range(1, count + 1), fraction) == expected


def test_nothing_measured_is_none_not_zero() -> None:
    """A scenario without an answer has no latency and no cost."""
    empty = measurement("x", [], seconds=1.0, errors={"e": 2}, cpu_seconds=0.5)

    assert (empty.p50_ms, empty.p99_ms, empty.server_cpu_ms) == (None, None, None)
    assert (empty.requests, empty.per_second, empty.errors) == (0, 0.0, {"e": 2})


def test_units_are_milliseconds_and_per_request() -> None:
    """Samples come in seconds; figures leave in milliseconds."""
    one = measurement("x", [0.004, 0.002], seconds=0.5, cpu_seconds=0.003)

    assert (one.p50_ms, one.p90_ms) == (2.0, 4.0)
    assert (one.per_second, one.server_cpu_ms) == (4.0, 1.5)


def test_a_ratio_compares_equal_numbers_of_clients() -> None:
    """The echo at 8 clients bounds a run at 8 clients; a fork bounds them all."""
    found = with_ratios(
        [
            measurement("echo", [0.001], seconds=1, clients=1),
            measurement("echo", [0.004], seconds=1, clients=8),
            measurement("fork", [0.002], seconds=1),
            measurement("warm_run", [0.002], seconds=1, clients=1, floor="echo"),
            measurement("warm_run", [0.006], seconds=1, clients=8, floor="echo"),
            measurement("open", [0.012], seconds=1, clients=8, floor="fork"),
            measurement("open", [], seconds=1, clients=8, floor="fork"),
            measurement("lonely", [0.012], seconds=1, clients=8, floor="none"),
        ]
    )

    ratios = [one.ratio for one in found]
    assert ratios == [None, None, None, 2.0, 1.5, 6.0, None, None]
