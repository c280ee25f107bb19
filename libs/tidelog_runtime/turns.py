"""Long work in slices, between which the event loop gets its turn: heartbeats, leases and
health checks wait for no more than one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol, TypeVar

# What takes 20 µs an item holds the loop for little more than a millisecond.
ITEMS_PER_TURN = 64
# So does what takes 3 µs, as the wire form of a state that is shared does; where all states differ
# it takes a few milliseconds. Each turn that is given away may take as long as whatever else there
# is to do.
QUICK_ITEMS_PER_TURN = 400

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
_Added = TypeVar("_Added", contravariant=True)


async def in_turns(
    make: Callable[[_Item], _Made], items: Iterable[_Item], items_per_turn: int = ITEMS_PER_TURN
) -> list[_Made]:
    """`[make(item) for item in items]`. Up to `items_per_turn` are made without a pause; nothing
    that `make` rests on may change in one."""
    made: list[_Made] = []
    for item in items:
        if made and len(made) % items_per_turn == 0:
            await asyncio.sleep(0)
        made.append(make(item))
    return made


async def give_turns(turns: int) -> None:
    """Lets everything else that is ready run so many times."""
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
    """`to.extend(map(make, items))`, as `in_turns`: a message copies what it is given."""
    coming = iter(items)
    while some := list(islice(coming, items_per_turn)):
        to.extend(map(make, some))
        if len(some) == items_per_turn:
            await asyncio.sleep(0)
