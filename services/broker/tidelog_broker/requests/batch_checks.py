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
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch, TopicPartition
from tidelog.request_bounds import MAX_PRODUCE_DECODED_BYTES, MAX_TIMEOUT_MS
from tidelog_broker.background import RunBlocking

# Raises TidelogError for a batch that is corrupt, differs from its header, or exceeds a limit.
# Returns its decompressed bytes.
CheckBatch = Callable[[Batch], int]

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


class DecodedBytesError(TidelogError):
    """The batches of a request have too many decompressed bytes together."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"the batches of this Produce request have more than {MAX_PRODUCE_DECODED_BYTES} bytes "
            "once they are decompressed; send several requests",
        )


class _DecodedBytes:
    """The decompressed bytes of one request, as its frames state them, or more if a frame holds
    more. Raises `DecodedBytesError`."""

    def __init__(self, batches: Batches) -> None:
        self._size = 0
        for of_partition in batches.values():
            for batch in of_partition:
                self._add(decoded_size(batch))

    def check_actual(self, batch: Batch, size: int) -> None:
        self._add(max(0, size - decoded_size(batch)))

    def _add(self, size: int) -> None:
        self._size += size
        if self._size > MAX_PRODUCE_DECODED_BYTES:
            raise DecodedBytesError


def _no_turn(timeout_ms: int) -> TidelogError:
    return TidelogError(
        ErrorCode.TOO_MANY_REQUESTS,
        f"the request was not checked within its timeout of {timeout_ms} ms, because others were "
        "ahead of it; nothing was appended: try again in a moment",
    )


class Checked(NamedTuple):
    """The result of a check.

    - `errors`: one for each partition with an invalid batch.
    - `batches`: those to append in place of the sent ones, where they differ.
    """

    errors: dict[TopicPartition, TidelogError]
    batches: dict[TopicPartition, Sequence[Batch]]


class _Turn:
    """The place of a request in the order of its partitions.

    - `before`: by partition, the request that it follows.
    """

    def __init__(self, before: Mapping[TopicPartition, _Turn]) -> None:
        self.before = before
        self.over = asyncio.Event()

    async def until_first(self) -> None:
        """Waits for all requests that are ahead, also of those that gave up and wait no longer."""
        ahead, seen = list(self.before.values()), {id(self)}
        while ahead:
            turn = ahead.pop()
            if id(turn) not in seen:
                seen.add(id(turn))
                await turn.over.wait()
                ahead += turn.before.values()
        self.before = {}


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
        # By partition, the last request in the checks: over once it is appended.
        self._last: dict[TopicPartition, _Turn] = {}

    @asynccontextmanager
    async def checked(
        self,
        batches: Batches,
        append_timed: Collection[TopicPartition] = (),
        timeout_ms: int = MAX_TIMEOUT_MS,
    ) -> AsyncIterator[Checked]:
        """Enters the block once the batches are checked and may be appended.

        The next request of their partitions follows after the block. `append_timed`: partitions
        whose records get the time of their append. Raises INVALID_REQUEST for too many decompressed
        bytes, and TOO_MANY_REQUESTS if the request has not had its turn within `timeout_ms`.
        """
        before = {name: last for name in batches if (last := self._last.get(name)) is not None}
        decoded = _DecodedBytes(batches)
        costly = is_costly(batches.values())
        if not before and not costly and len(batches) <= APPENDS_PER_TURN:
            yield self._check_pieces(batches.items(), append_timed, Checked({}, {}), decoded)
            return
        turn = _Turn(before)
        for name in batches:
            self._last[name] = turn
        try:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    checked = Checked({}, {})
                    if costly:
                        await self._check_in_thread(batches, append_timed, checked, decoded)
                    else:
                        self._check_pieces(batches.items(), append_timed, checked, decoded)
                    await turn.until_first()
            except TimeoutError:
                raise _no_turn(timeout_ms) from None
            yield checked
        finally:
            turn.over.set()
            for name in batches:
                if self._last.get(name) is turn:
                    del self._last[name]
                    ahead = turn.before.get(name)
                    # It gave up, so the next one follows the nearest one ahead that did not.
                    while ahead is not None and ahead.over.is_set():
                        ahead = ahead.before.get(name)
                    if ahead is not None:
                        self._last[name] = ahead

    async def _check_in_thread(
        self,
        batches: Batches,
        append_timed: Collection[TopicPartition],
        checked: Checked,
        decoded: _DecodedBytes,
    ) -> None:
        for turn in turns_of(batches):

            def check(turn: Sequence[_Piece] = turn) -> None:
                self._check_pieces(turn, append_timed, checked, decoded)

            async with self._room:
                await self._run_blocking(check)

    def _check_pieces(
        self,
        pieces: Iterable[_Piece],
        append_timed: Collection[TopicPartition],
        checked: Checked,
        decoded: _DecodedBytes,
    ) -> Checked:
        """Adds to `checked`. Batches after an invalid one of the same partition are not checked."""
        for name, batches in pieces:
            if name in checked.errors:
                continue
            try:
                for batch in batches:
                    decoded.check_actual(batch, self._check(batch))
                if name in append_timed:
                    before = checked.batches.get(name, ())
                    checked.batches[name] = [*before, *map(self._without_deltas, batches)]
            except DecodedBytesError:
                raise
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
