"""Compares a backup with the topics of a cluster, record by record.

Batches whose bytes are equal are not decoded. Where they differ, for instance because another
producer wrote the records, keys, values, headers and timestamps are compared.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidelog.backup.creation import ALL_TOPICS, PREFETCH_BYTES
from tidelog.backup.directory import BackupDirectory
from tidelog.backup.manifest import BackupError, PartitionBackup
from tidelog.backup.offset_mapping import KeptRange, kept_ranges
from tidelog.backup.restoring_topics import TargetName, target_names
from tidelog.backup.segments import read_chunk, read_partition
from tidelog.backup.selection import matching
from tidelog.backup.workers import (
    DEFAULT_PARALLELISM,
    OnProgress,
    TransferProgress,
    no_progress,
    work_on,
)
from tidelog.batch import is_damaged, is_fence
from tidelog.client.admin import Admin
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.consumer import Consumer
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch, Record, TopicPartition

# Differences that a report names; all are counted.
MAX_NAMED_DIFFERENCES = 100
POLL_MS = 500
NO_PROGRESS_MS = 60_000
# Characters of a record that a message shows.
_SHOWN_CHARACTERS = 200


@dataclass(slots=True)
class Comparison:
    """Counts of records. `differences` has one line for each of the first."""

    partitions: int = 0
    records: int = 0
    difference_count: int = 0
    differences: list[str] = field(default_factory=list)

    def differs(self, count: int, what: str) -> None:
        self.difference_count += count
        if len(self.differences) < MAX_NAMED_DIFFERENCES:
            self.differences.append(what)


class _Task(NamedTuple):
    """`ranges`: offsets in the backup and in the cluster, where they may be the same."""

    source: TopicPartition
    target: TopicPartition
    topic_id: str
    backup: PartitionBackup
    ranges: Sequence[KeptRange]


async def compare_backup(
    bootstrap: str | Sequence[str],
    path: Path,
    *,
    topics: Sequence[str] = ALL_TOPICS,
    renamed: Mapping[str, str] | None = None,
    parallelism: int = DEFAULT_PARALLELISM,
    on_progress: OnProgress = no_progress,
    clock: Clock | None = None,
) -> Comparison:
    """Compares each record of the backup with the cluster. Records that the cluster has beyond the
    backup are no differences. A topic with the id that it had is the original, with its offsets.
    Raises `BackupError`, `TidelogError` and `OSError`."""
    directory = BackupDirectory(path)
    manifest = await asyncio.to_thread(directory.read)
    targets = target_names(manifest, matching(manifest, topics), renamed or {})
    found = Comparison()
    async with Admin(bootstrap) as admin:
        tasks = [task for target in targets for task in await _tasks(admin, target)]

    async def work(left: deque[_Task]) -> None:
        async with Consumer(bootstrap, prefetch_bytes=PREFETCH_BYTES) as consumer:
            while left:
                comparer = _Comparer(consumer, directory, left.popleft(), found, on_progress)
                await comparer.compare(clock or SystemClock())

    await work_on(tasks, parallelism, work)
    return found


async def _tasks(admin: Admin, target: TargetName) -> list[_Task]:
    described = await admin.describe_topic(target.name)
    is_original = described.topic_id == target.backup.topic_id
    if described.partition_count < target.backup.partition_count:
        raise BackupError(
            f"topic {target.name!r} has {described.partition_count} partitions, and the backup has "
            f"{target.backup.partition_count}"
        )
    tasks: list[_Task] = []
    for source, backup in target.backup.named():
        ranges = kept_ranges(backup)
        if is_original:
            ranges = [kept._replace(restored_offset=kept.first_offset) for kept in ranges]
        name = TopicPartition(target.name, source.partition)
        tasks.append(_Task(source, name, described.topic_id, backup, ranges))
    return tasks


class _Comparer:
    """Compares one partition. Holds one chunk of the backup and one poll of the consumer."""

    def __init__(
        self,
        consumer: Consumer,
        directory: BackupDirectory,
        task: _Task,
        found: Comparison,
        on_progress: OnProgress,
    ) -> None:
        self._consumer = consumer
        self._directory = directory
        self._task = task
        self._found = found
        self._on_progress = on_progress

    async def compare(self, clock: Clock) -> None:
        task, found = self._task, self._found
        found.partitions += 1
        if not task.ranges:
            return
        start = (await self._consumer.beginning_offsets([task.target]))[task.target]
        cluster = self._cluster_batches(start, clock)
        actual = _Records()
        async for batch, offset in self._backup_batches():
            count = batch.header.record_count
            found.records += count
            self._on_progress(TransferProgress(len(batch.records), count))
            if offset + count <= start:
                found.differs(count, self._removed(offset, count))
                continue
            while actual.next_offset < offset + count:
                more = await anext(cluster, None)
                if more is None:
                    break
                actual.add(more)
            if not actual.holds_equal(batch, offset):
                await asyncio.to_thread(self._compare_records, batch, offset, actual)
            actual.drop_before(offset + count)

    def _removed(self, offset: int, count: int) -> str:
        return (
            f"{self._task.target} no longer has the records at offsets {offset} to "
            f"{offset + count - 1}: its log starts behind them"
        )

    async def _backup_batches(self) -> AsyncIterator[tuple[Batch, int]]:
        """Yields the batches of the backup, each with its first offset in the cluster."""
        task = self._task
        shifts = iter(task.ranges)
        current = next(shifts)
        path = self._directory.partition_path(task.source)
        batches = _without_omitted(read_partition(path, task.backup))
        while chunk := await asyncio.to_thread(read_chunk, batches):
            for batch in chunk:
                base = batch.header.base_offset
                while base >= current.next_offset:
                    current = next(shifts)
                yield batch, base - current.first_offset + current.restored_offset

    async def _cluster_batches(self, start: int, clock: Clock) -> AsyncIterator[FetchedBatch]:
        """Yields the batches of the cluster up to the end of what is compared. Ends earlier if the
        log does."""
        task, consumer = self._task, self._consumer
        last = task.ranges[-1]
        end = last.restored_offset + last.next_offset - last.first_offset
        offset = max(start, task.ranges[0].restored_offset)
        log_end = (await consumer.end_offsets([task.target]))[task.target]
        end = min(end, log_end)
        consumer.assign([])
        await consumer.resume(task.target, offset, topic_id=task.topic_id, end_offset=end)
        since_ms = clock.monotonic_ms()
        while offset < end:
            batches = await consumer.poll_batches(POLL_MS)
            for batch in batches:
                yield batch
            reached = consumer.position(task.target) or offset
            if reached > offset:
                offset, since_ms = reached, clock.monotonic_ms()
            elif clock.monotonic_ms() - since_ms >= NO_PROGRESS_MS:
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no leader of {task.target} returned a batch from offset {offset} on for "
                    f"{NO_PROGRESS_MS} ms; run tidelog explain",
                )

    def _compare_records(self, batch: Batch, offset: int, actual: _Records) -> None:
        there = actual.records_from(offset)
        whole = FetchedBatch(self._task.source, batch, 0)
        for piece in whole.record_slices():
            for record in piece:
                at = offset + record.offset - batch.header.base_offset
                self._compare_record(record, at, there.get(at))

    def _compare_record(self, expected: Record, at: int, found: Record | None) -> None:
        source = f"{self._task.source} offset {expected.offset}"
        if found is None:
            self._found.differs(1, f"{self._task.target} lacks offset {at}, which is {source}")
        elif _content(found) != _content(expected):
            shown = f"{_content(found)!r}"[:_SHOWN_CHARACTERS]
            self._found.differs(
                1, f"{self._task.target} offset {at} differs from {source}: it is {shown}"
            )


def _content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.timestamp_ms, record.headers


def _without_omitted(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        if not (is_fence(batch.header) or is_damaged(batch.header)):
            yield batch


class _Records:
    """The batches of the cluster that are not compared yet, in order."""

    def __init__(self) -> None:
        self._batches: deque[FetchedBatch] = deque()
        self.next_offset = -1

    def add(self, batch: FetchedBatch) -> None:
        self._batches.append(batch)
        self.next_offset = batch.next_offset

    def holds_equal(self, batch: Batch, offset: int) -> bool:
        """Whether a batch at this offset has the same bytes."""
        expected = batch.header
        for fetched in self._batches:
            header = fetched.header
            if header.base_offset == offset:
                return fetched.batch.records == batch.records and (
                    header.codec,
                    header.record_count,
                    header.base_timestamp_ms,
                ) == (expected.codec, expected.record_count, expected.base_timestamp_ms)
        return False

    def records_from(self, offset: int) -> dict[int, Record]:
        return {
            record.offset: record
            for fetched in self._batches
            if fetched.next_offset > offset
            for piece in fetched.record_slices()
            for record in piece
            if record.offset >= offset
        }

    def drop_before(self, offset: int) -> None:
        while self._batches and self._batches[0].next_offset <= offset:
            self._batches.popleft()
