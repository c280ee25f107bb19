"""Writes a backup into topics that do not exist yet, batch by batch and without decoding records.

All files are checked first: nothing is created from a damaged backup.

Partitions, keys, values, headers, timestamps and compression stay as they were. Offsets begin at 0
(`offset_mapping`), and the batches have a producer of their own (`restoring_topics`)."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidelog.backup.creation import ALL_TOPICS
from tidelog.backup.directory import BackupDirectory
from tidelog.backup.manifest import (
    BackupError,
    ClusterSettings,
    Manifest,
    PartitionBackup,
    TopicBackup,
)
from tidelog.backup.offset_mapping import keeps_offsets, kept_ranges, source_offset
from tidelog.backup.restoring_topics import (
    RestoredTopic,
    TopicPreparation,
    complete_topic,
    target_names,
)
from tidelog.backup.segments import DamagedSegmentError, read_chunk, read_partition
from tidelog.backup.selection import matching
from tidelog.backup.verification import verify_backup
from tidelog.backup.workers import OnProgress, Pace, TransferProgress, no_progress, work_on
from tidelog.batch import is_damaged, is_fence
from tidelog.client.admin import Admin
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.consumer import Consumer
from tidelog.client.delivery import BatchReport, DeliveryFuture
from tidelog.client.log_copies import send_encoded
from tidelog.client.producer import Producer
from tidelog.client.sequences import SEQUENCES, Identity
from tidelog.compression import codec_of
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET, Batch, TopicPartition
from tidelog.phrases import plural
from tidelog.record_batch import EncodedRecords
from tidelog.record_limits import HIGHEST_MAX_BATCH_BYTES
from tidelog.units import size_text

# The only epoch of the producer's name, so that every run of a restore is the same producer.
EPOCH = 0
DEFAULT_RESTORE_PARALLELISM = 8
# Bytes that are sent and not yet acknowledged, of all partitions together.
BUFFER_BYTES = 64 << 20
# Batches of a partition that are sent and not yet acknowledged.
MAX_UNACKNOWLEDGED = 64
DELIVERY_TIMEOUT_MS = 300_000


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What to restore, and how.

    - `topics`: names, with wildcards as in shells.
    - `renamed`: names in the cluster, by names in the backup.
    - `replication_factor`: of all topics; None: as in the backup.
    - `allow_incomplete`: restore a backup that lacks a part of some partitions.
    - `keeps_all`: leave retention off, instead of as in the backup.
    - `sets_throttle`: give the cluster the limit on moves that the backed-up cluster had.
    """

    topics: Sequence[str] = ALL_TOPICS
    renamed: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int | None = None
    allow_incomplete: bool = False
    keeps_all: bool = False
    sets_throttle: bool = False
    max_bytes_per_second: int | None = None
    parallelism: int = DEFAULT_RESTORE_PARALLELISM


class TopicResult(NamedTuple):
    """A restored topic. `written`: records of this run; `records`: of all runs."""

    topic: str
    source: str
    partitions: int
    records: int
    written: int
    keeps_offsets: bool


class RestoreResult(NamedTuple):
    topics: Sequence[TopicResult]
    size_bytes: int
    warnings: Sequence[str]


class _Task(NamedTuple):
    target: TopicPartition
    source: TopicPartition
    backup: PartitionBackup
    written: int


async def restore_backup(
    bootstrap: str | Sequence[str],
    path: Path,
    options: RestoreOptions | None = None,
    *,
    on_progress: OnProgress = no_progress,
    clock: Clock | None = None,
) -> RestoreResult:
    """Restores topics; a repeated call continues an interrupted one. Raises `BackupError` if the
    backup cannot be used, `TidelogError` and `OSError`."""
    options = options or RestoreOptions()
    clock = clock or SystemClock()
    directory = BackupDirectory(path)
    manifest = await asyncio.to_thread(directory.read)
    chosen = matching(manifest, options.topics)
    _check_complete(chosen, options)
    _check_settings(manifest, options)
    targets = target_names(manifest, chosen, options.renamed)
    await _check_sound(path, options.topics)
    async with Admin(bootstrap) as admin:
        brokers = len((await admin.describe_cluster()).brokers)
        identity = await admin.init_producer_id(producer_name(manifest), epoch=EPOCH)
        async with Consumer(bootstrap) as consumer:
            preparation = TopicPreparation(
                admin, consumer, identity, brokers, options.replication_factor
            )
            topics = await preparation.prepare(targets)
        writer = _Writer(bootstrap, directory, identity, options, clock, on_progress)
        await writer.write(topics)
        for topic in topics:
            await complete_topic(admin, topic, keeps_retention=options.keeps_all)
        preparation.warnings += await _restore_settings(admin, manifest.settings, options)
    results = [_result(topic, writer.records.get(topic.name, 0)) for topic in topics]
    warnings = [*preparation.warnings, *_incomplete(chosen)]
    return RestoreResult(results, writer.size_bytes, warnings)


def producer_name(manifest: Manifest) -> str:
    return f"tidelog-restore-{manifest.backup_id}"


def _incomplete(chosen: Sequence[TopicBackup]) -> list[str]:
    return [
        f"{name} is not complete: {found.error}"
        for topic in chosen
        for name, found in topic.named()
        if found.error
    ]


def _check_complete(chosen: Sequence[TopicBackup], options: RestoreOptions) -> None:
    missing = _incomplete(chosen)
    if missing and not options.allow_incomplete:
        raise BackupError(
            f"the backup lacks a part of {plural(len(missing), 'partition')} ({missing[0]}); "
            "complete it with tidelog backup create --incremental, or restore what there is with "
            "--allow-incomplete"
        )


def _check_settings(manifest: Manifest, options: RestoreOptions) -> None:
    if options.sets_throttle and manifest.settings is None:
        raise BackupError(
            "the backup lacks the limit on moves: no controller answered when it began, or an "
            "earlier release made it; restore without --throttle, and set it by tidelog throttle "
            "set"
        )


async def _restore_settings(
    admin: Admin, settings: ClusterSettings | None, options: RestoreOptions
) -> list[str]:
    """Returns a warning if the cluster lacks the limit of the backup: it applies to all topics, so
    that it is only set if that is requested."""
    if settings is None:
        return []
    limit = settings.moves_bytes_per_second
    if options.sets_throttle:
        await admin.set_throttle(limit)
        return []
    present = (await admin.describe_throttle()).bytes_per_second
    if limit is None or present == limit:
        return []
    other = "has no limit" if present is None else f"limits them to {size_text(present)}"
    return [
        f"the backed-up cluster limited moves to {size_text(limit)} a second, and this one "
        f"{other}; to set the same limit: tidelog throttle set {limit}"
    ]


async def _check_sound(path: Path, topics: Sequence[str]) -> None:
    """Raises `DamagedSegmentError` if a file of these topics is damaged or missing."""
    is_over = threading.Event()

    def end(_: int) -> None:
        # The thread reads on otherwise, and the program waits for it.
        if is_over.is_set():
            raise InterruptedError

    try:
        found = await asyncio.to_thread(verify_backup, path, end, topics)
    finally:
        is_over.set()
    if found.fault_count:
        more = found.fault_count - 1
        raise DamagedSegmentError(
            f"the backup is damaged, and nothing was restored: {found.faults[0]}"
            + (f" ({more:,} more: tidelog backup verify lists them)" if more else "")
            + "; use another copy of it, or leave the topic out with --topics"
        )


def _result(topic: RestoredTopic, written: int) -> TopicResult:
    partitions = topic.backup.partitions
    return TopicResult(
        topic.name,
        topic.backup.topic,
        topic.backup.partition_count,
        sum(partition.records for partition in partitions),
        written,
        all(keeps_offsets(partition) for partition in partitions),
    )


class _Writer:
    """Writes the partitions of topics with one producer. `records`: by topic, of this run."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        directory: BackupDirectory,
        identity: Identity,
        options: RestoreOptions,
        clock: Clock,
        on_progress: OnProgress,
    ) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._identity = identity
        self._options = options
        self._pace = Pace(options.max_bytes_per_second, clock)
        self._on_progress = on_progress
        self.records: dict[str, int] = {}
        self.size_bytes = 0

    async def write(self, topics: Sequence[RestoredTopic]) -> None:
        tasks = [
            _Task(TopicPartition(topic.name, name.partition), name, backup, written)
            for topic in topics
            for name, backup in topic.backup.named()
            if (written := topic.written.get(name.partition, 0)) < backup.records
        ]
        producer = Producer(
            self._bootstrap,
            identity=self._identity,
            buffer_bytes=BUFFER_BYTES,
            max_request_bytes=HIGHEST_MAX_BATCH_BYTES,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        )
        try:

            async def work(left: deque[_Task]) -> None:
                while left:
                    await self._write_partition(producer, left.popleft())

            await work_on(tasks, self._options.parallelism, work)
        finally:
            # All that was to be written is acknowledged, unless there was an error.
            await producer.close(flush=False)

    async def _write_partition(self, producer: Producer, task: _Task) -> None:
        target, expected = task.target, task.written
        producer.begin_at(*target, expected % SEQUENCES)
        sent: deque[tuple[int, DeliveryFuture[BatchReport]]] = deque()
        batches = self._batches(task)
        while chunk := await asyncio.to_thread(read_chunk, batches):
            size = records = 0
            for batch in chunk:
                if len(sent) >= MAX_UNACKNOWLEDGED:
                    await _acknowledged(target, *sent.popleft())
                sent.append((expected, await send_encoded(producer, target, _encoded(batch))))
                expected += batch.header.record_count
                size += len(batch.records)
                records += batch.header.record_count
            self.size_bytes += size
            self.records[target.topic] = self.records.get(target.topic, 0) + records
            self._on_progress(TransferProgress(size, records))
            await self._pace.spend(size)
        while sent:
            await _acknowledged(target, *sent.popleft())

    def _batches(self, task: _Task) -> Iterator[Batch]:
        """Yields the batches to write. Raises `BackupError`."""
        first = task.backup.start_offset
        if task.written:
            found = source_offset(kept_ranges(task.backup), task.written)
            assert found is not None, "fewer records are written than the backup has"
            first = found
        begun = False
        directory = self._directory.partition_path(task.source)
        for batch in read_partition(directory, task.backup, first):
            header = batch.header
            if is_fence(header) or is_damaged(header):
                continue
            if not begun and header.base_offset != first:
                raise BackupError(
                    f"{task.target} ends within a batch of the backup, so this restore did not "
                    f"write it; delete topic {task.target.topic!r}, or use --rename"
                )
            begun = True
            yield batch


def _encoded(batch: Batch) -> EncodedRecords:
    header = batch.header
    return EncodedRecords(
        batch.records,
        codec_of(header.codec),
        header.record_count,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
    )


async def _acknowledged(
    partition: TopicPartition, expected: int, delivery: DeliveryFuture[BatchReport]
) -> None:
    """Waits for a batch. Raises `TidelogError` if it is not where it has to be."""
    report = await delivery
    if report.base_offset not in (NO_OFFSET, expected):
        raise TidelogError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"a batch of {partition} was written at offset {report.base_offset} instead of "
            f"{expected}: another producer writes to the topic; stop it, delete the topic and "
            "restore again",
        )
