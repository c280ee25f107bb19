"""Checks what producers send before it is appended: on the event loop where that is cheap, and in a
thread where it may take long, in the order in which the requests came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from tidelog.batch_slices import is_costly_to_open
from tidelog.errors import TidelogError
from tidelog.model import Batch, TopicPartition
from tidelog_broker.background import RunBlocking

# Raises TidelogError for a batch that is corrupt, not what its header says, or beyond a limit.
CheckBatch = Callable[[Batch], None]

# What one request has checked on the loop: a millisecond or two.
CHEAP_REQUEST_BYTES = 512 << 10
CHEAP_REQUEST_BATCHES = 32
# Between the appends of a request that names more partitions than this, the loop gets its turn.
APPENDS_PER_TURN = 16
# Each holds one decompressed batch at a time.
CHECKS_AT_ONCE = 4

# Gives all records of a batch its first record's timestamp.
WithoutDeltas = Callable[[Batch], Batch]

Batches = Mapping[TopicPartition, Sequence[Batch]]


class Checked(NamedTuple):
    """`errors`: of each partition that has a bad batch. `batches`: what is to be appended in place
    of what was sent, where that differs."""

    errors: dict[TopicPartition, TidelogError]
    batches: dict[TopicPartition, Sequence[Batch]]


class BatchChecks:
    """A request whose check is cheap does not overtake an earlier one of the same partition whose
    check is not: a producer's batches are appended in the order in which they came."""

    def __init__(
        self, check: CheckBatch, without_deltas: WithoutDeltas, run_blocking: RunBlocking
    ) -> None:
        self._check = check
        self._without_deltas = without_deltas
        self._run_blocking = run_blocking
        self._room = asyncio.Semaphore(CHECKS_AT_ONCE)
        # By partition, the last request that is being checked: set once it is appended.
        self._last: dict[TopicPartition, asyncio.Event] = {}

    @asynccontextmanager
    async def checked(
        self, batches: Batches, append_timed: Collection[TopicPartition] = ()
    ) -> AsyncIterator[Checked]:
        """Enters when they are checked and it is their turn to be appended; their turn ends with
        the block. `append_timed`: partitions whose records get the time of their append."""
        before = [last for name in batches if (last := self._last.get(name)) is not None]
        costly = is_costly(batches.values())
        if not before and not costly and len(batches) <= APPENDS_PER_TURN:
            yield self._check_all(batches, append_timed)
            return
        appended = asyncio.Event()
        for name in batches:
            self._last[name] = appended
        try:
            if costly:
                checked = await self._check_in_thread(batches, append_timed)
            else:
                checked = self._check_all(batches, append_timed)
            for last in before:
                await last.wait()
            yield checked
        finally:
            appended.set()
            for name in batches:
                if self._last.get(name) is appended:
                    del self._last[name]

    async def _check_in_thread(
        self, batches: Batches, append_timed: Collection[TopicPartition]
    ) -> Checked:
        found: list[Checked] = []
        async with self._room:
            await self._run_blocking(lambda: found.append(self._check_all(batches, append_timed)))
        return found[0]

    def _check_all(self, batches: Batches, append_timed: Collection[TopicPartition]) -> Checked:
        checked = Checked({}, {})
        for name, of_partition in batches.items():
            try:
                for batch in of_partition:
                    self._check(batch)
                if name in append_timed:
                    checked.batches[name] = list(map(self._without_deltas, of_partition))
            except TidelogError as error:
                checked.errors[name] = error
        return checked


def is_costly(batches: Iterable[Sequence[Batch]]) -> bool:
    """Whether checking all of them may hold the loop for more than a few milliseconds."""
    count = size = 0
    for of_partition in batches:
        count += len(of_partition)
        if count > CHEAP_REQUEST_BATCHES:
            return True
        for batch in of_partition:
            size += len(batch.records)
            if size > CHEAP_REQUEST_BYTES or is_costly_to_open(batch):
                return True
    return False
