"""What isolation costs: tiers side by side, and what is said of them."""

import pytest
import trio

from qedtrio.cli.bench.report import describe_sandbox
from qedtrio.cli.bench.sandbox import (
    LEAST_ROUNDS,
    WARM_RUNS,
    Difference,
    Rounds,
    SandboxCost,
    measure_sandbox,
)
from qedtrio.cli.calls import RefusedError
from qedtrio.config import Limits
from qedtrio.sandbox.tiers import Tier
from qedtrio.sessions.registry import Sessions
from qedtrio.workers.probe import probe_host


@pytest.mark.slow
async def test_all_tiers_of_the_host_are_compared_by_turns() -> None:
    """Each has as many starts as the others, and its warm runs."""
    with trio.fail_after(60):
        if (reached := (await probe_host()).tier) is Tier.C:
            pytest.skip("this host reaches tier C only")
        cost = await measure_sandbox("none", (), seconds=0.01)

    requests = {m.scenario: m.requests for m in cost.measurements}
    assert cost.rounds >= LEAST_ROUNDS
    assert requests[f"start_{reached}_none"] == requests["start_C_none"] == cost.rounds
    assert requests["warm_C_none"] == cost.rounds * WARM_RUNS
    low, high = cost.start.quartiles_ms
    assert low <= cost.start.median_ms <= high


@pytest.mark.slow
async def test_a_preload_that_fails_is_refused() -> None:
    """The report says why there is no figure."""
    with trio.fail_after(60):
        if (await probe_host()).tier is Tier.C:
            pytest.skip("this host reaches tier C only")
        with pytest.raises(RefusedError, match="no_such_module"):
            await measure_sandbox("odd", ("no_such_module",), seconds=0.01)


def test_the_difference_is_taken_within_rounds() -> None:
    """A machine that grew slower on the way changes nothing."""
    tiers = [Tier.A, Tier.B, Tier.C]
    rounds = Rounds(Sessions({}, "none", Limits()), tiers)
    rounds.starts = {
        Tier.A: [0.012, 0.022, 0.132],
        Tier.B: [0.0, 0.0, 0.0],
        Tier.C: [0.010, 0.020, 0.030],
    }

    found = rounds.difference(rounds.starts)
    assert found.median_ms == pytest.approx(2.0)
    assert found.undisturbed_ms == pytest.approx(2.0)
    assert found.quartiles_ms == pytest.approx((2.0, 102.0))


@pytest.mark.parametrize(("median", "said"), [(2.9, "reached"), (3.1, "missed")])
def test_the_report_says_whether_the_aim_is_reached(median: float, said: str) -> None:
    """In words, with the quartiles beside it."""
    difference = Difference(
        median_ms=median, quartiles_ms=(1.0, 4.0), undisturbed_ms=2.0
    )
    cost = SandboxCost(
        preload="none",
        tier="A",
        rounds=9,
        start=difference,
        warm=difference,
        measurements=[],
    )

    text = describe_sandbox(cost)
    assert f"3 ms {said}" in text
    assert f"{median:+.2f} ms (quartiles +1.00 to +4.00, quickest tenth +2.00)" in text
