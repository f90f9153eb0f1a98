"""The fair queue: turns, bounds, and nothing lost."""

from collections import Counter

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from qedtrio.errors import OverloadedError
from qedtrio.verify.queue import FairQueue


async def drain(queue: FairQueue[str]) -> list[str]:
    """All that waits, in turn."""
    return [await queue.take() for _ in range(len(queue))]


async def test_requests_take_turns_and_keep_their_own_order() -> None:
    """One item of each request per round, first come first served within it."""
    queue: FairQueue[str] = FairQueue(10)
    for request, items in (("a", "123"), ("b", "4"), ("c", "56")):
        for item in items:
            queue.add(request, item)

    assert await drain(queue) == ["1", "4", "5", "2", "6", "3"]


async def test_a_full_queue_refuses_and_a_removal_makes_room() -> None:
    """The bound counts waiting items only."""
    queue: FairQueue[str] = FairQueue(2)
    queue.add("a", "1")
    queue.add("a", "2")
    with pytest.raises(OverloadedError):
        queue.add("b", "3")

    assert queue.remove("a", "1")
    assert not queue.remove("a", "1")
    assert not queue.remove("z", "1")
    queue.add("b", "3")
    assert await drain(queue) == ["2", "3"]


async def test_a_waiting_taker_gets_what_is_added() -> None:
    """Each of several waiting takers gets one item, none twice."""
    queue: FairQueue[str] = FairQueue(10)
    taken: list[str] = []

    async def take() -> None:
        taken.append(await queue.take())

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(take)
            await trio.testing.wait_all_tasks_blocked()
            for item in "xyz":
                queue.add("r", item)

    assert sorted(taken) == ["x", "y", "z"]


async def test_a_cancelled_taker_loses_nothing() -> None:
    """What it was woken for is there for the next."""
    queue: FairQueue[str] = FairQueue(10)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(queue.take)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        queue.add("r", "1")

        assert await queue.take() == "1"


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_the_length_is_the_number_of_items(steps: list[tuple[int, bool]]) -> None:
    """Whatever is added and removed, all and only the rest comes out."""
    queue: FairQueue[int] = FairQueue(1000)
    expected: list[tuple[int, int]] = []
    for number, (request, is_removal) in enumerate(steps):
        if is_removal and expected:
            gone = expected.pop(number % len(expected))
            assert queue.remove(*gone)
        else:
            queue.add(request, number)
            expected.append((request, number))
        assert len(queue) == len(expected)

    assert Counter(queue.take_all()) == Counter(number for _, number in expected)
    assert len(queue) == 0
