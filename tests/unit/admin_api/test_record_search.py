"""How a search scans partitions, and why it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import Record, TopicPartition
from tidelog_admin_api import record_search
from tidelog_admin_api.record_collecting import MAX_RECORD_BYTES
from tidelog_admin_api.record_criteria import Criteria
from tidelog_admin_api.record_reader import POLL_RECORDS
from tidelog_admin_api.record_search import (
    MAX_SKIPPED,
    PROGRESS_MS,
    STALLED_MS,
    Cursor,
    End,
    Event,
    Match,
    RecordSearch,
    ScanProgress,
    SearchBound,
    SearchRange,
    Skipped,
)
from unit.admin_api.fake_operations import FakeConsumer
from unit.admin_api.test_event_hub import ManualClock

BOUND = SearchBound(max_matches=100, max_scanned=1_000, timeout_ms=60_000)
ALL = SearchRange()
ANY = Criteria()


class FakePartitions(FakeConsumer):
    """Reads one of several partitions at a time.

    - `step_ms`: the time that each poll takes
    """

    def __init__(self, clock: ManualClock, *partitions: FakeConsumer) -> None:
        super().__init__([])
        self.clock = clock
        self.partitions = partitions
        self.chosen = partitions[0]
        self.unavailable: set[int] = set()
        self.step_ms = 0
        self.polls = 0

    def _one(self, partitions: Any) -> FakeConsumer:
        (partition,) = partitions
        if partition.partition in self.unavailable:
            raise TidelogError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        found: FakeConsumer = self.partitions[partition.partition]
        found.of = partition
        return found

    async def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return await self._one(partitions).beginning_offsets(partitions)

    async def end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return await self._one(partitions).end_offsets(partitions)

    async def offsets_at_time(
        self, timestamp_ms: int, partitions: Any
    ) -> dict[TopicPartition, int]:
        return await self._one(partitions).offsets_at_time(timestamp_ms, partitions)

    def assign(self, partitions: Any) -> None:
        self.chosen = self._one(partitions)

    async def seek(self, partition: Any, offset: int) -> None:
        await self.chosen.seek(partition, offset)

    def position(self, partition: Any) -> int:
        return self.chosen.position(partition)

    async def poll(self, timeout_ms: int = 0, max_records: int = 0) -> list[Record]:
        self.polls += 1
        self.clock.now_ms += self.step_ms
        return await self.chosen.poll(timeout_ms, max_records)


def stored(offset: int, value: bytes = b"calm", partition: int = 0) -> Record:
    return Record("sea", partition, offset, 1_000 + offset, b"k%d" % (offset % 3), value, (), 3)


def log(*offsets: int, partition: int = 0, start: int = 0) -> FakeConsumer:
    records = [stored(n, partition=partition) for n in offsets]
    return FakeConsumer(records, start, offsets[-1] + 1 if offsets else start)


class Sought:
    """The result of a search."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.found = [(e.record.partition, e.record.offset) for e in events if isinstance(e, Match)]
        self.skipped = [e for e in events if isinstance(e, Skipped)]
        self.progress = [e for e in events if isinstance(e, ScanProgress)]
        end = events[-1]
        assert isinstance(end, End)
        self.end = end

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offset in self.found]


async def search(
    reading: FakeConsumer,
    criteria: Criteria = ANY,
    where: SearchRange = ALL,
    bound: SearchBound = BOUND,
    clock: ManualClock | None = None,
    **options: Any,
) -> Sought:
    count = len(reading.partitions) if isinstance(reading, FakePartitions) else 1
    partitions = [TopicPartition("sea", number) for number in range(count)]
    cursor = options.get("cursor")
    if cursor is not None:
        partitions = partitions[cursor.partition :]
    clock = clock or ManualClock()
    running = RecordSearch(reading, partitions, where, criteria, bound, clock, **options)
    return Sought([event async for event in running.events()])


async def test_a_search_finds_matches_behind_many_other_records() -> None:
    records = [stored(n, b"storm" if n % 400 == 399 else b"calm") for n in range(800)]
    sought = await search(FakeConsumer(records), Criteria(value_has=b"storm"))
    assert sought.offsets == [399, 799]
    end = sought.end
    assert (end.reason, end.cursor) == ("complete", None)
    assert (end.progress.scanned, end.progress.matches) == (800, 2)
    assert end.progress.scanned_bytes == sum(len(r.value or b"") + 2 for r in records)


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (ALL, [10, 11, 12, 13, 14]),
        (SearchRange(offset=13), [13, 14]),
        (SearchRange(before_offset=12), [10, 11]),
        (SearchRange(timestamp_ms=1_012), [12, 13, 14]),
        (SearchRange(before_timestamp_ms=1_012), [10, 11]),
        (SearchRange(timestamp_ms=1_011, before_timestamp_ms=1_013), [11, 12]),
        # Beyond the log.
        (SearchRange(offset=2), [10, 11, 12, 13, 14]),
        (SearchRange(before_offset=99), [10, 11, 12, 13, 14]),
        (SearchRange(offset=99), []),
        (SearchRange(offset=13, before_offset=11), []),
    ],
)
async def test_a_search_stays_within_its_range(where: SearchRange, offsets: list[int]) -> None:
    sought = await search(log(*range(10, 15), start=10), where=where)
    assert (sought.offsets, sought.end.reason) == (offsets, "complete")


async def test_partitions_are_scanned_one_after_the_other() -> None:
    clock = ManualClock()
    reading = FakePartitions(clock, log(0, 1), log(partition=1), log(5, 6, partition=2, start=5))
    sought = await search(reading, clock=clock)
    assert sought.found == [(0, 0), (0, 1), (2, 5), (2, 6)]
    assert (sought.end.progress.done, sought.end.progress.partitions) == (3, 3)


async def test_progress_names_the_range_and_the_next_offset() -> None:
    clock = ManualClock()
    reading = FakePartitions(clock, log(*range(3 * POLL_RECORDS)))
    reading.step_ms = PROGRESS_MS
    sought = await search(reading, Criteria(key=b"none"), clock=clock)
    assert [one.next_offset for one in sought.progress] == [200, 400, 600]
    assert {(one.first_offset, one.before_offset) for one in sought.progress} == {(0, 600)}


LIMITS = {
    "max_matches": BOUND._replace(max_matches=3),
    "max_scanned": BOUND._replace(max_scanned=3),
}


@pytest.mark.parametrize("reason", LIMITS)
async def test_a_search_ends_at_a_limit_and_continues_from_its_cursor(reason: str) -> None:
    clock = ManualClock()
    reading = FakePartitions(clock, log(*range(4)), log(*range(4), partition=1))
    found: list[tuple[int, int]] = []
    cursor: Cursor | None = None
    reasons: list[str] = []
    while not reasons or cursor is not None:
        sought = await search(reading, bound=LIMITS[reason], clock=clock, cursor=cursor)
        found += sought.found
        reasons.append(sought.end.reason)
        cursor = sought.end.cursor
    assert found == [(p, n) for p in (0, 1) for n in range(4)]
    assert reasons == [reason, reason, "complete"]


async def test_the_bytes_of_matches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_search, "MAX_MATCH_BYTES", 14)
    first = await search(log(*range(5)))
    # Each record has six bytes.
    assert (first.offsets, first.end.reason) == ([0, 1], "max_match_bytes")
    second = await search(log(*range(5)), cursor=first.end.cursor)
    assert second.offsets == [2, 3]


async def test_the_scanned_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_search, "MAX_SEARCHED_BYTES", 12)
    sought = await search(log(*range(5)), Criteria(key=b"none"))
    assert (sought.end.reason, sought.end.cursor) == ("max_scanned_bytes", Cursor(0, 2))


async def test_a_search_ends_when_its_time_is_up() -> None:
    clock = ManualClock()
    reading = FakePartitions(clock, log(*range(5 * POLL_RECORDS)))
    reading.step_ms = 600
    bound = BOUND._replace(timeout_ms=1_000)
    sought = await search(reading, Criteria(key=b"none"), bound=bound, clock=clock)
    assert (sought.end.reason, sought.end.cursor) == ("timeout", Cursor(0, 2 * POLL_RECORDS))


async def test_a_search_ends_when_the_gateway_stops() -> None:
    sought = await search(log(*range(3)), is_stopping=lambda: True)
    assert (sought.end.reason, sought.end.cursor) == ("stopping", Cursor(0, 0))


async def test_a_search_over_more_partitions_than_one_scans_leads_to_the_others() -> None:
    sought = await search(log(0, 1), further=7)
    assert (sought.end.reason, sought.end.cursor) == ("max_partitions", Cursor(7, 0))


async def test_damaged_records_are_skipped_and_reported() -> None:
    reading = log(*range(10))
    reading.damaged = [(3, 5)]
    sought = await search(reading)
    assert sought.offsets == [0, 1, 2, *range(5, 10)]
    [skipped] = sought.skipped
    assert (skipped.first_offset, skipped.next_offset) == (3, 5)
    assert isinstance(skipped.error, RecordsDamagedError)


async def test_an_unreadable_batch_ends_the_scan_of_its_partition_only() -> None:
    clock = ManualClock()
    first = log(*range(4))
    first.unreadable = 2
    sought = await search(FakePartitions(clock, first, log(0, partition=1)), clock=clock)
    assert sought.found == [(0, 0), (0, 1), (1, 0)]
    assert [(s.partition, s.first_offset, s.next_offset) for s in sought.skipped] == [(0, 2, None)]


async def test_a_partition_without_a_leader_is_skipped() -> None:
    clock = ManualClock()
    reading = FakePartitions(clock, log(0), log(0, partition=1))
    reading.unavailable = {0}
    sought = await search(reading, clock=clock)
    assert sought.found == [(1, 0)]
    assert [(s.partition, s.first_offset) for s in sought.skipped] == [(0, None)]
    assert sought.end.reason == "complete"


async def test_a_partition_that_gives_no_records_is_skipped_after_a_while() -> None:
    clock = ManualClock()
    reading = FakePartitions(clock, log(*range(4)), log(0, partition=1))
    reading.step_ms = STALLED_MS // 4

    class Stalled(FakeConsumer):
        async def poll(self, timeout_ms: int = 0, max_records: int = 0) -> list[Record]:  # noqa: ARG002
            return []

    reading.partitions = (Stalled(log(*range(4)).records), reading.partitions[1])
    sought = await search(reading, clock=clock)
    assert sought.found == [(1, 0)]
    [skipped] = sought.skipped
    assert "returned no record for 10000 ms" in str(skipped.error)


async def test_the_number_of_skipped_ranges_is_bounded() -> None:
    reading = FakeConsumer([], end=1_000)
    reading.damaged = [(n, n + 1) for n in range(1_000)]
    sought = await search(reading)
    assert len(sought.skipped) == MAX_SKIPPED
    assert (sought.end.reason, sought.end.cursor) == ("max_skipped", Cursor(0, MAX_SKIPPED))


async def test_a_record_too_large_to_show_is_counted_and_not_returned() -> None:
    records = [stored(0), stored(1, bytes(MAX_RECORD_BYTES + 1)), stored(2)]
    sought = await search(FakeConsumer(records))
    assert (sought.offsets, sought.end.progress.not_examined) == ([0, 2], 1)


async def test_offsets_without_a_record_are_no_obstacle() -> None:
    reading = log(0, 7, 8)
    reading.end = 40
    sought = await search(reading)
    assert (sought.offsets, sought.end.reason) == ([0, 7, 8], "complete")


async def test_scanned_records_are_counted() -> None:
    counted: list[int] = []
    await search(log(*range(7)), on_scanned=counted.append)
    assert sum(counted) == 7
