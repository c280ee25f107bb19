"""Reads a few committed records of a partition."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple, Protocol

from tidelog.errors import ErrorCode, InvalidBatchError, RecordsDamagedError, TidelogError
from tidelog.model import OnDamage, Record, TopicPartition
from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.problems import ProblemError
from tidelog_runtime.clock import Clock

# Records of one poll.
POLL_RECORDS = 200
# A poll does not end at offsets without records. After this time the position is checked.
POLL_TIMEOUT_MS = 250
# Damaged ranges that one read skips. The next read continues after them.
MAX_DAMAGED_RANGES = 100
# Maximum size of a record, including HEADER_BYTES. As JSON it can be six times as large, and is
# written in one turn of the event loop.
MAX_RECORD_BYTES = 2 << 20
# Added to the size of each header, since an empty header is also an object in the answer.
HEADER_BYTES = 256
_Partitions = Iterable[TopicPartition | tuple[str, int]]


class ReadsRecords(Protocol):
    """The part of `tidelog.client.Consumer` that the gateway uses."""

    async def beginning_offsets(self, partitions: _Partitions) -> dict[TopicPartition, int]: ...

    async def end_offsets(self, partitions: _Partitions) -> dict[TopicPartition, int]: ...

    async def offsets_at_time(
        self, timestamp_ms: int, partitions: _Partitions
    ) -> dict[TopicPartition, int]: ...

    def assign(self, partitions: _Partitions) -> None: ...

    async def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None: ...

    async def poll(self, timeout_ms: int = ..., max_records: int = ...) -> list[Record]: ...

    def position(self, partition: TopicPartition | tuple[str, int]) -> int | None: ...

    async def close(self) -> None: ...


class AtOffset(NamedTuple):
    offset: int


class AtTime(NamedTuple):
    """Start at the first record at or after `timestamp_ms`, in milliseconds since 1970."""

    timestamp_ms: int


class Latest(NamedTuple):
    """Read the newest records. There may be fewer than `records` if offsets have gaps.

    With a key, the newest records with that key among the last `max_scanned`.
    """

    records: int


Start = AtOffset | AtTime | Latest


class ReadBound(NamedTuple):
    """The limits of a read, and the records that it selects.

    - `max_bytes`: maximum size of keys, values and headers. A single record is returned even if it
      is larger, up to MAX_RECORD_BYTES. A read of the newest records leaves out the oldest ones
      beyond the limit. It leaves out a record above MAX_RECORD_BYTES and all older ones.
    - `max_scanned`: maximum number of records to read, including records with other keys
    - `key`: select only records with this key; None: all records
    - `wait_ms`: how long to wait for a first record if there is none yet
    - `timeout_ms`: timeout of the whole read
    - `on_damage`: how to treat records that are damaged on the last disk that held them, as in
      `Consumer`
    """

    max_records: int
    max_bytes: int
    max_scanned: int
    wait_ms: int
    timeout_ms: int
    key: bytes | None = None
    on_damage: OnDamage = OnDamage.RAISE


class DamagedRange(NamedTuple):
    """Offsets from `first_offset` up to, but not including, `next_offset`."""

    first_offset: int
    next_offset: int


class Read(NamedTuple):
    """The result of a read.

    - `end_offset`: one past the last committed record when the read began
    - `damaged`: ranges that were skipped
    """

    records: list[Record]
    next_offset: int
    log_start_offset: int
    end_offset: int
    damaged: Sequence[DamagedRange] = ()


async def read_records(
    consumer: ReadsRecords,
    partition: TopicPartition,
    start: Start,
    bound: ReadBound,
    clock: Clock,
) -> Read:
    """Reads records until a limit is reached or the time is up.

    Raises:

    - `TidelogError`: UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OUT_OF_RANGE, or REQUEST_TIMED_OUT if
      the leader does not report where its log ends
    - `ProblemError`: if the first record is larger than MAX_RECORD_BYTES
    - `RecordsDamagedError`: at damaged records that are not skipped
    - `InvalidBatchError`: at a batch that cannot be opened

    If there are records before the damage or that batch, they are the result, and the next read
    raises the error. A read of the newest records always raises it.
    """
    give_up_ms = clock.monotonic_ms() + bound.timeout_ms
    log_start = (await consumer.beginning_offsets([partition]))[partition]
    end = (await consumer.end_offsets([partition]))[partition]
    begin = await _begin(consumer, partition, _reach(start, bound), log_start, end)
    consumer.assign([partition])
    await consumer.seek(partition, begin)
    collecting = _Collecting(bound, begin, keeps_newest=isinstance(start, Latest))
    if begin >= end:
        # Wait for records that do not exist yet.
        wait_ms = min(bound.wait_ms, give_up_ms - clock.monotonic_ms())
        collecting.add(await consumer.poll(wait_ms, POLL_RECORDS) if wait_ms > 0 else [])
        return Read(collecting.records, collecting.next_offset, log_start, end)
    while not collecting.is_full and collecting.next_offset < end:
        left_ms = give_up_ms - clock.monotonic_ms()
        if left_ms <= 0:
            break
        try:
            # A poll takes longer than its timeout if it waits to open a large batch.
            async with asyncio.timeout(left_ms / 1000):
                polled = await consumer.poll(min(left_ms, POLL_TIMEOUT_MS), POLL_RECORDS)
            collecting.add(polled)
        except TimeoutError:
            break
        except RecordsDamagedError as error:
            if bound.on_damage is OnDamage.RAISE:
                if isinstance(start, Latest) or not collecting.records:
                    raise
                break
            collecting.skip(DamagedRange(error.first_offset, error.next_offset))
            await consumer.seek(partition, error.next_offset)
            continue
        except InvalidBatchError:
            if isinstance(start, Latest) or not collecting.records:
                raise
            break
        collecting.advance(consumer.position(partition))
    return Read(collecting.records, collecting.next_offset, log_start, end, collecting.damaged)


def _reach(start: Start, bound: ReadBound) -> Start:
    """Returns where to start. For the newest records with a key, that is `max_scanned` back."""
    has_key = isinstance(start, Latest) and bound.key is not None
    return Latest(bound.max_scanned) if has_key else start


async def _begin(
    consumer: ReadsRecords, partition: TopicPartition, start: Start, log_start: int, end: int
) -> int:
    match start:
        case AtTime(timestamp_ms):
            return (await consumer.offsets_at_time(timestamp_ms, [partition]))[partition]
        case Latest(records):
            return max(log_start, end - records)
        case AtOffset(offset) if log_start <= offset <= end:
            return offset
        case AtOffset(offset):
            raise TidelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition} has no offset {offset}; it begins at {log_start} and ends before "
                f"{end}; latest=10 reads the newest records",
            )


class _Collecting:
    """Selects the first records that fit into the bound, or with `keeps_newest` the last ones."""

    def __init__(self, bound: ReadBound, begin: int, *, keeps_newest: bool) -> None:
        self.next_offset = begin
        self.is_full = False
        self.damaged: list[DamagedRange] = []
        self._bound = bound
        self._keeps_newest = keeps_newest
        self._kept: deque[Record] = deque()
        self._bytes = 0
        self._scanned = 0

    @property
    def records(self) -> list[Record]:
        return list(self._kept)

    def add(self, polled: Iterable[Record]) -> None:
        for record in polled:
            if not self.is_full and self._is_selected(record):
                self._keep(record)
            if self.is_full:
                return
            self._scanned += 1
            self.next_offset = record.offset + 1
            self.is_full = self._scanned >= self._bound.max_scanned or (
                not self._keeps_newest and len(self._kept) >= self._bound.max_records
            )

    def skip(self, damaged: DamagedRange) -> None:
        self.damaged.append(damaged)
        self.next_offset = max(self.next_offset, damaged.next_offset)
        self.is_full = len(self.damaged) >= MAX_DAMAGED_RANGES

    def _is_selected(self, record: Record) -> bool:
        return self._bound.key is None or record.key == self._bound.key

    def _keep(self, record: Record) -> None:
        size = _size(record)
        if size > MAX_RECORD_BYTES:
            self._leave_out(record, size)
            return
        if self._kept and self._bytes + size > self._bound.max_bytes and not self._keeps_newest:
            self.is_full = True
            return
        self._kept.append(record)
        self._bytes += size
        while len(self._kept) > 1 and self._is_over():
            self._bytes -= _size(self._kept.popleft())

    def _leave_out(self, record: Record, size: int) -> None:
        if self._keeps_newest:
            # The older records do not fit either.
            self._kept.clear()
            self._bytes = 0
            return
        if not self._kept:
            raise ProblemError(
                "RECORD_TOO_LARGE",
                ErrorMapping(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    "OUT_OF_RANGE",
                    f"Read it with a client, or continue at offset {record.offset + 1}.",
                ),
                f"the record at offset {record.offset} has {size} bytes; the gateway returns "
                f"records of at most {MAX_RECORD_BYTES} bytes",
            )
        self.is_full = True

    def _is_over(self) -> bool:
        bound = self._bound
        return len(self._kept) > bound.max_records or self._bytes > bound.max_bytes

    def advance(self, position: int | None) -> None:
        """Advances to the consumer's position, after all polled records were added."""
        if not self.is_full and position is not None:
            self.next_offset = max(self.next_offset, position)


def _size(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(HEADER_BYTES + len(name) + len(value) for name, value in record.headers)
