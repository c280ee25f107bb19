"""Splits a long list into requests that a service accepts (`request_bounds`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tidelog.model import TopicPartition
from tidelog.request_bounds import MAX_REQUEST_BYTES, entries_limit

# Requests of one query that one service answers at the same time.
MAX_REQUESTS_AT_ONCE = 4
# Maximum size of one list in a request. The other half is for the other fields.
MAX_PART_BYTES = MAX_REQUEST_BYTES // 2
# Maximum size of an entry without its topic's name: the topic's id, and numbers.
_ENTRY_BYTES = 128

_Entry = TypeVar("_Entry")
_Answer = TypeVar("_Answer")


def name_bytes(name: str) -> int:
    return len(name.encode()) + _ENTRY_BYTES


def partition_bytes(partition: TopicPartition) -> int:
    return name_bytes(partition.topic)


def number_bytes(_: int) -> int:
    return _ENTRY_BYTES // 8


def in_parts(
    entries: Iterable[_Entry], field: str, size_bytes: Callable[[_Entry], int]
) -> Iterator[list[_Entry]]:
    """Yields parts that fit into the repeated `field` (its full name) of one request each; one
    empty part if there are no entries. `size_bytes`: maximum size of an entry on the wire."""
    limit = entries_limit(field)
    part: list[_Entry] = []
    part_bytes = 0
    parts = 0
    for entry in entries:
        entry_bytes = size_bytes(entry)
        if part and (len(part) == limit or part_bytes + entry_bytes > MAX_PART_BYTES):
            yield part
            parts += 1
            part, part_bytes = [], 0
        part.append(entry)
        part_bytes += entry_bytes
    if part or not parts:
        yield part


async def call_concurrently(
    ask: Callable[[Sequence[_Entry]], Awaitable[_Answer]], parts: Iterable[Sequence[_Entry]]
) -> list[_Answer]:
    """Returns the answers to all parts in order, MAX_REQUESTS_AT_ONCE at a time. `ask` raises
    nothing but cancellations."""
    room = asyncio.Semaphore(MAX_REQUESTS_AT_ONCE)

    async def ask_one(part: Sequence[_Entry]) -> _Answer:
        async with room:
            return await ask(part)

    return await asyncio.gather(*map(ask_one, parts))
