"""A bounded queue that takes turns between requests.

Within one request items leave in the order they came. Between requests the
queue goes round, one item each, so that a batch of thousands delays a single
item by one item's work, not by thousands'.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import trio

from qedtrio.errors import OverloadedError

__all__ = ["FairQueue"]

Item = TypeVar("Item", bound=Hashable)


class FairQueue(Generic[Item]):
    """Items waiting for a turn, at most `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._length = 0
        # OrderedDict, not dict: removing from the front of a dict again and
        # again leaves a growing gap that each next look has to cross.
        self._requests: OrderedDict[Hashable, OrderedDict[Item, None]] = OrderedDict()
        self._takers = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return self._length

    def add(self, request: Hashable, item: Item) -> None:
        """Let `item` wait as part of `request`.

        Raises:
            OverloadedError: The queue is full.
        """
        if self._length >= self._size:
            raise OverloadedError(f"{self._size} items wait to be verified already")
        self._requests.setdefault(request, OrderedDict())[item] = None
        self._length += 1
        self._takers.unpark()

    def remove(self, request: Hashable, item: Item) -> bool:
        """Take `item` out without a turn; False if it waits no more."""
        items = self._requests.get(request)
        if items is None or item not in items:
            return False
        del items[item]
        if not items:
            del self._requests[request]
        self._length -= 1
        return True

    async def take(self) -> Item:
        """Wait for the next item whose turn it is.

        Cancellation loses no item.
        """
        await trio.lowlevel.checkpoint()
        while not self._requests:
            await self._takers.park()
        return self._pop()

    def take_all(self) -> list[Item]:
        """Empty the queue."""
        return [self._pop() for _ in range(self._length)]

    def _pop(self) -> Item:
        request, items = self._requests.popitem(last=False)
        item, _ = items.popitem(last=False)
        if items:
            self._requests[request] = items
        self._length -= 1
        return item
