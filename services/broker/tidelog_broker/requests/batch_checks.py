"""Checks what producers send before it is appended: on the event loop where that is cheap, and in a
thread where it may take long, in the order in which the requests came."""

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

# Raises TidelogError for a batch that is corrupt, not what its header says, or beyond a limit.
CheckBatch = Callable[[Batch], None]

# What one request has checked on the loop: a millisecond or two, and of so many headers some
# twenty. Bytes are of what it holds once decompressed.
CHEAP_REQUEST_BYTES = 512 << 10
CHEAP_REQUEST_BATCHES = 32
CHEAP_REQUEST_HEADERS = 65_536
# Between the appends of a request that names more partitions than this, the loop gets its turn.
APPENDS_PER_TURN = 16
# Each holds one decompressed batch at a time.
CHECKS_AT_ONCE = 4
# Of a request in one turn, once decompressed: a kilobyte may hold a hundred times as much, and
# others have their turn meanwhile.
BYTES_PER_CHECK = 64 << 20

# Gives all records of a batch its first record's timestamp.
WithoutDeltas = Callable[[Batch], Batch]

Batches = Mapping[TopicPartition, Sequence[Batch]]
# Of one partition, in their order.
_Piece = tuple[TopicPartition, Sequence[Batch]]


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
        """Adds to `checked`. What follows a bad batch in its partition is not checked."""
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
    """Pieces of a request that are checked in one turn: of BYTES_PER_CHECK, or a larger batch."""
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
    """Whether checking all of them may hold the loop for more than a few milliseconds."""
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
