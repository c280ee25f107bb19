"""Checks what producers send before it is appended: on the event loop where that is cheap, and in a
thread where it may take long, in the order in which the requests came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from tidelog.batch_slices import is_costly_to_open
from tidelog.errors import TidelogError
from tidelog.model import Batch, TopicPartition
from tidelog_broker.background import RunBlocking

# Raises TidelogError for a batch that is corrupt, not what its header says, or beyond a limit.
CheckBatch = Callable[[Batch], None]

# What one request has checked on the loop: a millisecond or two.
CHEAP_REQUEST_BYTES = 512 << 10
CHEAP_REQUEST_BATCHES = 32
# Each holds one decompressed batch at a time.
CHECKS_AT_ONCE = 4

Batches = Mapping[TopicPartition, Sequence[Batch]]
Errors = Mapping[TopicPartition, TidelogError]


class BatchChecks:
    """A request whose check is cheap does not overtake an earlier one of the same partition whose
    check is not: a producer's batches are appended in the order in which they came."""

    def __init__(self, check: CheckBatch, run_blocking: RunBlocking) -> None:
        self._check = check
        self._run_blocking = run_blocking
        self._room = asyncio.Semaphore(CHECKS_AT_ONCE)
        # By partition, the last request that is being checked: set once it is appended.
        self._last: dict[TopicPartition, asyncio.Event] = {}

    @asynccontextmanager
    async def checked(self, batches: Batches) -> AsyncIterator[Errors]:
        """Enters when they are checked and it is their turn to be appended: with the error of each
        partition that has a bad batch. Their turn ends with the block."""
        before = [last for name in batches if (last := self._last.get(name)) is not None]
        costly = is_costly(batches.values())
        if not before and not costly:
            yield self._check_all(batches)
            return
        appended = asyncio.Event()
        for name in batches:
            self._last[name] = appended
        try:
            errors = await self._check_in_thread(batches) if costly else self._check_all(batches)
            for last in before:
                await last.wait()
            yield errors
        finally:
            appended.set()
            for name in batches:
                if self._last.get(name) is appended:
                    del self._last[name]

    async def _check_in_thread(self, batches: Batches) -> Errors:
        found: dict[TopicPartition, TidelogError] = {}
        async with self._room:
            await self._run_blocking(lambda: found.update(self._check_all(batches)))
        return found

    def _check_all(self, batches: Batches) -> Errors:
        errors: dict[TopicPartition, TidelogError] = {}
        for name, of_partition in batches.items():
            try:
                for batch in of_partition:
                    self._check(batch)
            except TidelogError as error:
                errors[name] = error
        return errors


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
