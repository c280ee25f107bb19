"""Scans a range of records for those that match.

A search holds no state between requests: its cursor says where another one continues. It reads one
partition after the other, so that a cursor is a single offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import Record, TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.record_collecting import MAX_RECORD_BYTES, size_of
from tidelog_admin_api.record_criteria import Criteria, Verdict
from tidelog_admin_api.record_reader import POLL_RECORDS, POLL_TIMEOUT_MS, ReadsRecords
from tidelog_runtime.clock import Clock
from tidelog_runtime.cooperative import TimeSlices

# Bytes that one search reads, and bytes of the matches that it returns.
MAX_SEARCHED_BYTES = 1 << 30
MAX_MATCH_BYTES = 4 << 20
# Ranges that one search leaves out because they cannot be read.
MAX_SKIPPED = 100
# How long a partition may give no record before it is left out.
STALLED_MS = 10_000
PROGRESS_MS = 500


class Cursor(NamedTuple):
    """Where a search continues: at this offset, then in partitions with higher numbers."""

    partition: int
    offset: int


class SearchRange(NamedTuple):
    """The records to scan in each partition; None: from the log's start, or up to its end.

    - `before_offset`, `before_timestamp_ms`: the first record that is not scanned
    """

    offset: int | None = None
    timestamp_ms: int | None = None
    before_offset: int | None = None
    before_timestamp_ms: int | None = None


class SearchBound(NamedTuple):
    max_matches: int
    max_scanned: int
    timeout_ms: int


class Match(NamedTuple):
    record: Record


class Skipped(NamedTuple):
    """Offsets that could not be read.

    - `next_offset`: None: all further ones of the partition
    - `first_offset`: None: all of the partition
    """

    partition: int
    first_offset: int | None
    next_offset: int | None
    error: TidelogError | UnreachableError


@dataclass(slots=True)
class ScanProgress:
    """How far a search is.

    - `partition`: the one that is being scanned, from `first_offset` up to `before_offset`
    - `next_offset`: the next offset to scan
    - `done`, `partitions`: partitions that are done, and all of the search
    - `scanned`, `scanned_bytes`, `matches`, `not_examined`: records and bytes so far
    """

    partition: int
    partitions: int
    first_offset: int = 0
    next_offset: int = 0
    before_offset: int = 0
    done: int = 0
    scanned: int = 0
    scanned_bytes: int = 0
    matches: int = 0
    not_examined: int = 0


class End(NamedTuple):
    """Why a search has ended. `cursor` is None if the range is complete."""

    reason: str
    cursor: Cursor | None
    progress: ScanProgress


Event = Match | Skipped | ScanProgress | End
COMPLETE, STOPPING, TIMEOUT = "complete", "stopping", "timeout"
MAX_PARTITIONS_REACHED = "max_partitions"


class RecordSearch:
    """One search over partitions of a topic.

    - `partitions`: numbers in ascending order, at least one
    - `cursor`: where to continue; None: at the beginning
    - `further`: the number of the next partition that another search has to scan; None: none
    - `is_stopping`: whether the gateway stops
    - `on_scanned`: receives the number of records that were scanned
    """

    def __init__(
        self,
        consumer: ReadsRecords,
        partitions: Sequence[TopicPartition],
        where: SearchRange,
        criteria: Criteria,
        bound: SearchBound,
        clock: Clock,
        *,
        cursor: Cursor | None = None,
        further: int | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
        on_scanned: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._consumer = consumer
        self._partitions = partitions
        self._where = where
        self._criteria = criteria
        self._bound = bound
        self._clock = clock
        self._cursor = cursor
        self._further = further
        self._is_stopping = is_stopping
        self._on_scanned = on_scanned
        self._give_up_ms = clock.monotonic_ms() + bound.timeout_ms
        # The first progress comes with the first records.
        self._reported_ms = clock.monotonic_ms() - PROGRESS_MS
        self._progress = ScanProgress(partitions[0].partition, len(partitions))
        self._must_seek = False
        self._match_bytes = 0
        self._skipped = 0
        self._slices = TimeSlices()

    async def events(self) -> AsyncGenerator[Event]:
        """Yields matches and progress as they come, and `End` last.

        To close the generator ends the search. Errors of a partition are `Skipped`.
        """
        progress = self._progress
        for done, partition in enumerate(self._partitions):
            progress.done, progress.partition = done, partition.partition
            progress.first_offset = progress.next_offset = self._resumed(partition, 0)
            progress.before_offset = progress.next_offset
            try:
                async with asyncio.timeout(self._left_ms() / 1000):
                    first, before = await self._span(partition)
            except TimeoutError:
                yield End(TIMEOUT, self._here, replace(progress))
                return
            except (TidelogError, UnreachableError) as error:
                yield self._skip(Skipped(partition.partition, None, None, error))
            else:
                progress.first_offset = progress.next_offset = first
                progress.before_offset = max(first, before)
                async for event in self._scan(partition):
                    yield event
            if reason := self._reason():
                yield self._end(reason)
                return
        yield self._end(COMPLETE)

    async def _span(self, partition: TopicPartition) -> tuple[int, int]:
        """Returns the first offset to scan, and the one before which the scan ends."""
        consumer, where = self._consumer, self._where
        begins, ends = await asyncio.gather(
            consumer.beginning_offsets([partition]), consumer.end_offsets([partition])
        )
        first, before = begins[partition], ends[partition]
        if where.offset is not None:
            first = max(first, where.offset)
        if where.before_offset is not None:
            before = min(before, where.before_offset)
        if where.timestamp_ms is not None:
            found = await consumer.offsets_at_time(where.timestamp_ms, [partition])
            first = max(first, found[partition])
        if where.before_timestamp_ms is not None:
            found = await consumer.offsets_at_time(where.before_timestamp_ms, [partition])
            before = min(before, found[partition])
        return self._resumed(partition, first), before

    def _resumed(self, partition: TopicPartition, first: int) -> int:
        cursor = self._cursor
        is_resumed = cursor is not None and cursor.partition == partition.partition
        return max(first, cursor.offset) if cursor is not None and is_resumed else first

    async def _scan(self, partition: TopicPartition) -> AsyncGenerator[Event]:
        """Yields the events of one partition, whose range `_progress` has."""
        consumer, progress, number = self._consumer, self._progress, partition.partition
        if progress.next_offset >= progress.before_offset:
            return
        consumer.assign([partition])
        self._must_seek = True
        heard_ms = self._clock.monotonic_ms()
        while progress.next_offset < progress.before_offset and not self._reason():
            at = progress.next_offset
            polled = await self._poll(partition)
            if isinstance(polled, Skipped):
                yield polled
                if polled.next_offset is None:
                    return
                continue
            async for match in self._matches(polled):
                yield match
            if not self._limit():
                self._advance(consumer.position(partition) or 0)
            now_ms = self._clock.monotonic_ms()
            if progress.next_offset > at:
                heard_ms = now_ms
            elif now_ms - heard_ms >= STALLED_MS:
                yield self._skip(Skipped(number, at, None, _stalled(partition)))
                return
            if now_ms - self._reported_ms >= PROGRESS_MS:
                self._reported_ms = now_ms
                yield replace(progress)

    async def _matches(self, polled: Sequence[Record]) -> AsyncGenerator[Match]:
        for record in polled:
            if record.offset >= self._progress.before_offset or self._limit():
                return
            if await self._is_match(record):
                yield Match(record)
            # Includes the time that the caller has taken to send the match.
            await self._slices.checkpoint()

    async def _poll(self, partition: TopicPartition) -> list[Record] | Skipped:
        """Returns the next records, or the offsets that cannot be read."""
        left_ms, at = self._left_ms(), self._progress.next_offset
        try:
            if self._must_seek:
                await self._consumer.seek(partition, at)
                self._must_seek = False
            # A poll takes longer than its timeout if it waits to open a large batch.
            async with asyncio.timeout(left_ms / 1000):
                return await self._consumer.poll(min(left_ms, POLL_TIMEOUT_MS), POLL_RECORDS)
        except TimeoutError:
            return []
        except RecordsDamagedError as error:
            self._advance(max(error.next_offset, at + 1))
            self._must_seek = True
            return self._skip(Skipped(partition.partition, at, self._progress.next_offset, error))
        except (TidelogError, UnreachableError) as error:
            return self._skip(Skipped(partition.partition, at, None, error))

    async def _is_match(self, record: Record) -> bool:
        """Examines and counts a record, unless it is a match that exceeds MAX_MATCH_BYTES."""
        size, criteria, progress = size_of(record), self._criteria, self._progress
        verdict = Verdict.NOT_EXAMINED
        if size <= MAX_RECORD_BYTES:
            verdict = await self._slices.run(criteria.examining(record))
        is_match = verdict is Verdict.MATCH
        if is_match:
            self._match_bytes += size
            if self._match_bytes > MAX_MATCH_BYTES and progress.matches:
                # The next search begins with this record.
                return False
        progress.next_offset = record.offset + 1
        progress.scanned += 1
        progress.scanned_bytes += size
        progress.matches += is_match
        progress.not_examined += verdict is Verdict.NOT_EXAMINED
        self._on_scanned(1)
        return is_match

    def _advance(self, offset: int) -> None:
        progress = self._progress
        progress.next_offset = max(progress.next_offset, min(offset, progress.before_offset))

    def _skip(self, skipped: Skipped) -> Skipped:
        self._skipped += 1
        return skipped

    def _limit(self) -> str:
        """Returns the limit on records that the search has reached; empty: none."""
        progress, bound = self._progress, self._bound
        if progress.matches >= bound.max_matches:
            return "max_matches"
        if self._match_bytes >= MAX_MATCH_BYTES:
            return "max_match_bytes"
        if progress.scanned >= bound.max_scanned:
            return "max_scanned"
        return "max_scanned_bytes" if progress.scanned_bytes >= MAX_SEARCHED_BYTES else ""

    def _reason(self) -> str:
        """Returns why the search ends; empty: it continues."""
        if limit := self._limit():
            return limit
        if self._skipped >= MAX_SKIPPED:
            return "max_skipped"
        if self._left_ms() <= 0:
            return TIMEOUT
        return STOPPING if self._is_stopping() else ""

    def _left_ms(self) -> int:
        return max(0, self._give_up_ms - self._clock.monotonic_ms())

    @property
    def _here(self) -> Cursor:
        return Cursor(self._progress.partition, self._progress.next_offset)

    def _end(self, reason: str) -> End:
        progress = self._progress
        is_last = progress.done + 1 == len(self._partitions)
        if reason == COMPLETE or (is_last and progress.next_offset >= progress.before_offset):
            progress.done += 1
            if self._further is None:
                return End(COMPLETE, None, replace(progress))
            return End(MAX_PARTITIONS_REACHED, Cursor(self._further, 0), replace(progress))
        return End(reason, self._here, replace(progress))


def _stalled(partition: TopicPartition) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the leader of {partition} returned no record for {STALLED_MS} ms",
    )
