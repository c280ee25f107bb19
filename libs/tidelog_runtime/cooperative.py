"""Helpers for tasks that share one event loop.

Long work runs in slices, between which other tasks run: heartbeats, leases and health checks
wait for one slice at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Protocol, TypeVar

# At 20 µs an item, this blocks the event loop for a little more than a millisecond.
ITEMS_PER_SLICE = 64
# The same for items of 3 µs each, such as the wire form of a shared state. If all states differ, a
# slice takes a few milliseconds. A larger slice is worth it, because each yield may take as long as
# all other work that is ready.
QUICK_ITEMS_PER_SLICE = 400
# Maximum time of a slice of `TimeSlices`, plus that of one item.
SLICE_SECONDS = 0.01

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
_Added = TypeVar("_Added", contravariant=True)


async def map_yielding(
    make: Callable[[_Item], _Made], items: Iterable[_Item], items_per_slice: int = ITEMS_PER_SLICE
) -> list[_Made]:
    """Returns `[make(item) for item in items]` and yields after every `items_per_slice` items.

    `make` must not depend on state that may change at a yield.
    """
    made: list[_Made] = []
    for item in items:
        if made and len(made) % items_per_slice == 0:
            await asyncio.sleep(0)
        made.append(make(item))
    return made


class TimeSlices:
    """Yields to the event loop once work has taken SLICE_SECONDS since the last yield.

    For items that differ much in cost, such as records of a byte and of a megabyte. The time that
    the caller waits counts as well, so that the first item after a wait may yield again.

    - `seconds`: a monotonic clock
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._until = seconds() + SLICE_SECONDS

    async def checkpoint(self) -> None:
        """Yields if the slice is over. Call it after each item."""
        if self._seconds() >= self._until:
            await asyncio.sleep(0)
            self._until = self._seconds() + SLICE_SECONDS

    async def run(self, steps: Generator[None, None, _Made]) -> _Made:
        """Returns the result of `steps`, with a checkpoint wherever it yields."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                made: _Made = end.value
                return made
            await self.checkpoint()


def finished(steps: Generator[None, None, _Made]) -> _Made:
    """Returns the result of `steps`, without pauses where it yields."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: _Made = end.value
            return made


async def yield_times(turns: int) -> None:
    """Yields to all other ready tasks this many times."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Extensible(Protocol[_Added]):
    """A repeated field of a message."""

    def extend(self, items: Iterable[_Added], /) -> None: ...


async def extend_yielding(
    to: Extensible[_Made],
    make: Callable[[_Item], _Made],
    items: Iterable[_Item],
    items_per_slice: int = ITEMS_PER_SLICE,
) -> None:
    """Does `to.extend(map(make, items))` and yields as `map_yielding` does.

    The slices also bound the time that the message takes to copy the items.
    """
    coming = iter(items)
    while some := list(islice(coming, items_per_slice)):
        to.extend(map(make, some))
        if len(some) == items_per_slice:
            await asyncio.sleep(0)


def is_being_cancelled() -> bool:
    """Returns whether the running task itself is being cancelled.

    If not, a `CancelledError` means that the awaited object was cancelled: another task, or a
    call whose channel was closed.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
