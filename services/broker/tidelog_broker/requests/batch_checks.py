"""Checks the batches of producers before they are appended.

Cheap checks run on the event loop, and costly ones in a thread, in the order of the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import NamedTuple

from tidelog.batch_slices import decoded_size, is_costly_to_open, possible_headers
from tidelog.errors import TidelogError
from tidelog.model import Batch, TopicPartition
from tidelog_broker.background import RunBlocking

# Raises TidelogError for a batch that is corrupt, differs from its header, or exceeds a limit.
CheckBatch = Callable[[Batch], None]

# Limits of a request that is checked on the event loop: a millisecond or two, and some twenty with
# this many headers. Bytes are decompressed ones.
CHEAP_REQUEST_BYTES = 512 << 10
CHEAP_REQUEST_BATCHES = 32
CHEAP_REQUEST_HEADERS = 65_536
# A request with more partitions than this lets the event loop run between its appends.
APPENDS_PER_TURN = 16
# Each check holds one decompressed batch at a time.
CHECKS_AT_ONCE = 4
# Decompressed bytes of a request that are checked in one turn. A kilobyte may hold a hundred times
# as much, and other requests have turns in between.
BYTES_PER_CHECK = 64 << 20

# Gives all records of a batch the timestamp of its first record.
WithoutDeltas = Callable[[Batch], Batch]

Batches = Mapping[TopicPartition, Sequence[Batch]]
# Batches of one partition, in their order.
_Piece = tuple[TopicPartition, Sequence[Batch]]


class Checked(NamedTuple):
    """The result of a check.

    - `errors`: one for each partition with an invalid batch.
    - `batches`: those to append in place of the sent ones, where they differ.
    """

    errors: dict[TopicPartition, TidelogError]
    batches: dict[TopicPartition, Sequence[Batch]]


class BatchChecks:
    """Checks requests and keeps their order.

    A request with a cheap check does not overtake an earlier one of the same partition with a
    costly check: a producer's batches are appended in the order in which they came.
    """

    def __init__(
        self, check: CheckBatch, without_deltas: WithoutDeltas, run_blocking: RunBlocking
    ) -> None:
        self._check = check
        self._without_deltas = without_deltas
        self._run_blocking = run_blocking
        self._room = asyncio.Semaphore(CHECKS_AT_ONCE)
        # By partition, the last request in the checks: set once it is appended.
        self._last: dict[TopicPartition, asyncio.Event] = {}

    @asynccontextmanager
    async def checked(
        self, batches: Batches, append_timed: Collection[TopicPartition] = ()
    ) -> AsyncIterator[Checked]:
        """Enters the block once the batches are checked and may be appended.

        The next request of their partitions follows after the block. `append_timed`: partitions
        whose records get the time of their append.
        """
        before = [last for name in batches if (last := self._last.get(name)) is not None]
        costly = is_costly(batches.values())
        if not before and not costly and len(batches) <= APPENDS_PER_TURN:
            yield self._check_pieces(batches.items(), append_timed, Checked({}, {}))
            return
        appended = asyncio.Event()
        for name in batches:
            self._last[name] = appended
        try:
            if costly:
                checked = await self._check_in_thread(batches, append_timed)
            else:
                checked = self._check_pieces(batches.items(), append_timed, Checked({}, {}))
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
        checked = Checked({}, {})
        for turn in turns_of(batches):

            def check(turn: Sequence[_Piece] = turn) -> None:
                self._check_pieces(turn, append_timed, checked)

            async with self._room:
                await self._run_blocking(check)
        return checked

    def _check_pieces(
        self, pieces: Iterable[_Piece], append_timed: Collection[TopicPartition], checked: Checked
    ) -> Checked:
        """Adds to `checked`. Batches after an invalid one of the same partition are not checked."""
        for name, batches in pieces:
            if name in checked.errors:
                continue
            try:
                for batch in batches:
                    self._check(batch)
                if name in append_timed:
                    before = checked.batches.get(name, ())
                    checked.batches[name] = [*before, *map(self._without_deltas, batches)]
            except TidelogError as error:
                checked.errors[name] = error
        return checked


def turns_of(batches: Batches) -> Iterator[list[_Piece]]:
    """Yields the pieces of a request for each turn: up to BYTES_PER_CHECK, or one larger batch."""
    turn: list[_Piece] = []
    size = 0
    for name, of_partition in batches.items():
        first = 0
        for position, batch in enumerate(of_partition):
            batch_size = decoded_size(batch)
            if size and size + batch_size > BYTES_PER_CHECK:
                yield [*turn, (name, of_partition[first:position])]
                turn, size, first = [], 0, position
            size += batch_size
        turn.append((name, of_partition[first:]))
    if turn:
        yield turn


def is_costly(batches: Iterable[Sequence[Batch]]) -> bool:
    """Whether checking all of them may hold the event loop for more than a few milliseconds."""
    count = size = headers = 0
    for of_partition in batches:
        count += len(of_partition)
        if count > CHEAP_REQUEST_BATCHES:
            return True
        for batch in of_partition:
            if is_costly_to_open(batch):
                return True
            size += decoded_size(batch)
            if size > CHEAP_REQUEST_BYTES:
                return True
            headers += possible_headers(batch, CHEAP_REQUEST_HEADERS)
            if headers > CHEAP_REQUEST_HEADERS:
                return True
    return False
