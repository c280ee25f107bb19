"""Reads a few committed records of a partition, forwards or backwards, or a single one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple, Protocol, Self

from tidelog.errors import ErrorCode, InvalidBatchError, RecordsDamagedError, TidelogError
from tidelog.model import Record, TopicPartition
from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.problems import ProblemError
from tidelog_admin_api.record_collecting import (
    MAX_RECORD_BYTES,
    Collecting,
    DamagedRange,
    ReadBound,
)
from tidelog_runtime.clock import Clock

# Records of one poll.
POLL_RECORDS = 200
# A poll does not end at offsets without records. After this time the position is checked.
POLL_TIMEOUT_MS = 250
_Partitions = Iterable[TopicPartition | tuple[str, int]]


class ReadsRecords(Protocol):
    """The part of `tidelog.client.Consumer` that the gateway uses."""

    async def beginning_offsets(self, partitions: _Partitions) -> dict[TopicPartition, int]: ...

    async def end_offsets(self, partitions: _Partitions) -> dict[TopicPartition, int]: ...

    async def offsets_at_time(
        self, timestamp_ms: int, partitions: _Partitions
    ) -> dict[TopicPartition, int]: ...

    def assign(self, partitions: _Partitions) -> object: ...

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> Awaitable[None]: ...

    async def poll(self, timeout_ms: int = ..., max_records: int = ...) -> list[Record]: ...

    def position(self, partition: TopicPartition | tuple[str, int]) -> int | None: ...

    async def close(self) -> None: ...


class AtOffset(NamedTuple):
    offset: int


class AtTime(NamedTuple):
    """Start at the first record at or after `timestamp_ms`, in milliseconds since 1970."""

    timestamp_ms: int


class Before(NamedTuple):
    """Read the last records before `offset`: `max_records` of the bound, or fewer at gaps."""

    offset: int


class Latest(NamedTuple):
    """Read the newest records. There may be fewer than `records` if offsets have gaps.

    With a key, the newest records with that key among the last `max_scanned`.
    """

    records: int


Start = AtOffset | AtTime | Before | Latest


class Read(NamedTuple):
    """The result of a read: all selected records from `first_offset` up to `next_offset`.

    - `end_offset`: one past the last committed record when the read began
    - `damaged`: ranges that were skipped
    """

    records: list[Record]
    first_offset: int
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
      the leader does not report where its log ends, or if a read of `Before` is not complete
    - `ProblemError`: if the first record, or the last one before an offset, is larger than
      MAX_RECORD_BYTES
    - `RecordsDamagedError`: at damaged records that are not skipped
    - `InvalidBatchError`: at a batch that cannot be opened

    If there are records before the damage or that batch, they are the result, and the next read
    raises the error; a read of `Before` has those behind the damage. A read of the newest records
    always raises it.
    """
    reader = await _Reader.opened(consumer, partition, bound, clock)
    match start:
        case AtTime(timestamp_ms):
            begin = (await consumer.offsets_at_time(timestamp_ms, [partition]))[partition]
            return await reader.forwards(begin)
        case AtOffset(offset):
            reader.check_offset(offset)
            return await reader.forwards(offset)
        case Before(offset):
            reader.check_offset(offset)
            return await reader.backwards(offset)
        case Latest(records):
            return await reader.newest(records)


async def read_record(
    consumer: ReadsRecords, partition: TopicPartition, offset: int, timeout_ms: int, clock: Clock
) -> Record:
    """Reads the record at `offset`.

    Raises the errors of `read_records`, and `ProblemError` NO_SUCH_RECORD, which names the offsets
    that have records.
    """
    bound = ReadBound(1, MAX_RECORD_BYTES, 1, 0, timeout_ms)
    reader = await _Reader.opened(consumer, partition, bound, clock)
    if not reader.log_start <= offset < reader.end:
        raise reader.no_record(offset)
    read = await reader.forwards(offset)
    if read.records and read.records[0].offset == offset:
        return read.records[0]
    if read.next_offset > offset:
        raise reader.no_record(offset, read.records[0].offset if read.records else read.next_offset)
    raise reader.timed_out(f"the record at offset {offset} of {partition} was not read in time")


class _Reader:
    """Reads one partition once, within a bound."""

    def __init__(
        self,
        consumer: ReadsRecords,
        partition: TopicPartition,
        bound: ReadBound,
        clock: Clock,
        give_up_ms: int,
        log_start: int,
        end: int,
    ) -> None:
        self.log_start = log_start
        self.end = end
        self._consumer = consumer
        self._partition = partition
        self._bound = bound
        self._clock = clock
        self._give_up_ms = give_up_ms

    @classmethod
    async def opened(
        cls, consumer: ReadsRecords, partition: TopicPartition, bound: ReadBound, clock: Clock
    ) -> Self:
        """Returns a reader that knows where the log begins and ends. The timeout begins now."""
        give_up_ms = clock.monotonic_ms() + bound.timeout_ms
        log_start = (await consumer.beginning_offsets([partition]))[partition]
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.assign([partition])
        return cls(consumer, partition, bound, clock, give_up_ms, log_start, end)

    def check_offset(self, offset: int) -> None:
        if not self.log_start <= offset <= self.end:
            raise TidelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._partition} has no offset {offset}; it begins at {self.log_start} and ends "
                f"before {self.end}; latest=10 reads the newest records",
            )

    def no_record(self, offset: int, following: int | None = None) -> ProblemError:
        """Returns the error of an offset without a record.

        - `following`: the next offset that may have one, inside of the log
        """
        if self.log_start >= self.end:
            has = f"it has none, and the next one gets offset {self.end}"
            fix = f"Write a record: POST /v1/topics/{self._partition.topic}/records."
        else:
            inside = following is not None and following < self.end
            other = following if inside else self.log_start if offset < self.end else self.end - 1
            has = f"its records are at offsets {self.log_start} to {self.end - 1}"
            if inside:
                has = f"there is a gap, and the next record is at offset {other}"
            fix = (
                f"GET /v1/topics/{self._partition.topic}/partitions/{self._partition.partition}/"
                f"records?offset={other} reads the records from there."
            )
        return ProblemError(
            "NO_SUCH_RECORD",
            ErrorMapping(HTTPStatus.NOT_FOUND, "NOT_FOUND", fix),
            f"{self._partition} has no record at offset {offset}; {has}",
        )

    @staticmethod
    def timed_out(detail: str) -> TidelogError:
        return TidelogError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{detail}; give a longer timeout_ms, or a smaller max_records or max_bytes",
        )

    async def forwards(self, begin: int) -> Read:
        collecting = Collecting(self._bound, begin)
        await self._consumer.seek(self._partition, begin)
        if begin >= self.end:
            # Wait for records that do not exist yet.
            wait_ms = min(self._bound.wait_ms, self._left_ms())
            if wait_ms > 0:
                collecting.add(await self._consumer.poll(wait_ms, POLL_RECORDS))
        else:
            await self._fill(collecting, self.end)
        return self._result(collecting, collecting.next_offset)

    async def newest(self, records: int) -> Read:
        """Reads the last `records` before the end. Raises any damage among them."""
        # For the newest records with a key, that is `max_scanned` back.
        reach = records if self._bound.key is None else self._bound.max_scanned
        begin = max(self.log_start, self.end - reach)
        collecting = Collecting(self._bound, begin, keeps_newest=True)
        await self._consumer.seek(self._partition, begin)
        if begin >= self.end:
            return await self.forwards(begin)
        await self._fill(collecting, self.end)
        return self._result(collecting, collecting.next_offset)

    async def backwards(self, before: int) -> Read:
        """Reads the last records before an offset.

        The offsets just before it may have no records, so the read goes further back until it
        finds one, is at the log's start, or has used half of its time.
        """
        bound = self._bound
        until, reach = before, bound.max_records if bound.key is None else bound.max_scanned
        half_ms = self._left_ms() // 2
        while True:
            begin = max(self.log_start, until - reach)
            collecting = Collecting(bound, begin, until=until, keeps_newest=True)
            await self._consumer.seek(self._partition, begin)
            await self._fill(collecting, until)
            if collecting.next_offset < until:
                raise self.timed_out(f"the records before offset {before} were not read in time")
            collecting.raise_failure()
            is_done = bool(collecting.records or collecting.damaged or bound.key is not None)
            if is_done or begin == self.log_start or self._left_ms() < half_ms:
                return self._result(collecting, before)
            until, reach = begin, min(2 * reach, bound.max_scanned)

    async def _fill(self, collecting: Collecting, until: int) -> None:
        while not collecting.is_full and collecting.next_offset < until:
            left_ms = self._left_ms()
            if left_ms <= 0:
                return
            try:
                # A poll takes longer than its timeout if it waits to open a large batch.
                async with asyncio.timeout(left_ms / 1000):
                    poll_ms = min(left_ms, POLL_TIMEOUT_MS)
                    collecting.add(await self._consumer.poll(poll_ms, POLL_RECORDS))
            except TimeoutError:
                return
            except RecordsDamagedError as error:
                if not collecting.damage(error):
                    return
                await self._consumer.seek(self._partition, error.next_offset)
                continue
            except InvalidBatchError:
                if collecting.keeps_newest or not collecting.records:
                    raise
                return
            collecting.advance(self._consumer.position(self._partition))

    def _left_ms(self) -> int:
        return self._give_up_ms - self._clock.monotonic_ms()

    def _result(self, collecting: Collecting, next_offset: int) -> Read:
        first = min(collecting.first_offset, next_offset)
        damaged = [one for one in collecting.damaged if one.next_offset > first]
        return Read(collecting.records, first, next_offset, self.log_start, self.end, damaged)
