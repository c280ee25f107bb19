"""Long work in slices, between which the event loop runs other tasks.

Heartbeats, leases and health checks wait for one slice at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol, TypeVar

# At 20 µs an item, this blocks the event loop for a little more than a millisecond.
ITEMS_PER_TURN = 64
# The same for items of 3 µs each, such as the wire form of a shared state. If all states differ, a
# slice takes a few milliseconds. A larger slice is worth it, because each yield may take as long as
# all other work that is ready.
QUICK_ITEMS_PER_TURN = 400

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
_Added = TypeVar("_Added", contravariant=True)


async def in_turns(
    make: Callable[[_Item], _Made], items: Iterable[_Item], items_per_turn: int = ITEMS_PER_TURN
) -> list[_Made]:
    """Returns `[make(item) for item in items]` and yields after every `items_per_turn` items.

    `make` must not depend on state that may change at a yield.
    """
    made: list[_Made] = []
    for item in items:
        if made and len(made) % items_per_turn == 0:
            await asyncio.sleep(0)
        made.append(make(item))
    return made


async def give_turns(turns: int) -> None:
    """Yields to all other ready tasks this many times."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Extensible(Protocol[_Added]):
    """A repeated field of a message."""

    def extend(self, items: Iterable[_Added], /) -> None: ...


async def add_in_turns(
    to: Extensible[_Made],
    make: Callable[[_Item], _Made],
    items: Iterable[_Item],
    items_per_turn: int = ITEMS_PER_TURN,
) -> None:
    """Does `to.extend(map(make, items))` and yields as `in_turns` does.

    The slices also bound the time that the message takes to copy the items.
    """
    coming = iter(items)
    while some := list(islice(coming, items_per_turn)):
        to.extend(map(make, some))
        if len(some) == items_per_turn:
            await asyncio.sleep(0)
