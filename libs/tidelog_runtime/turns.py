"""Long work in slices, between which the event loop gets its turn: heartbeats, leases and
health checks wait for no more than one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

# What takes 20 µs an item holds the loop for little more than a millisecond.
ITEMS_PER_TURN = 64
# So does what takes 3 µs, as the wire form of a state that is shared does; where all states differ
# it takes a few milliseconds. Each turn that is given away may take as long as whatever else there
# is to do.
QUICK_ITEMS_PER_TURN = 400

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


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
