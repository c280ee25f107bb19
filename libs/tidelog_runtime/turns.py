"""Long work in slices, between which the event loop gets its turn: heartbeats, leases and
health checks wait for no more than one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

# What takes 20 µs an item holds the loop for little more than a millisecond.
ITEMS_PER_TURN = 64

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


async def in_turns(make: Callable[[_Item], _Made], items: Iterable[_Item]) -> list[_Made]:
    """`[make(item) for item in items]`. Up to ITEMS_PER_TURN are made without a pause; nothing
    that `make` rests on may change in one."""
    made: list[_Made] = []
    for item in items:
        if made and len(made) % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)
        made.append(make(item))
    return made
