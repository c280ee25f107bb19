"""Backs up topics into a directory: each partition up to the high watermark at the start.

The high watermarks are read once and stored before the first batch is copied. An interrupted run is
continued towards the same ones."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.backup.directory import BackupDirectory
from tidelog.backup.manifest import (
    BackupError,
    ClusterSettings,
    Manifest,
    PartitionBackup,
    TopicBackup,
)
from tidelog.backup.partition_copy import CopyTask, PartitionCopier
from tidelog.backup.segments import DEFAULT_SEGMENT_BYTES, SegmentWriter
from tidelog.backup.workers import (
    DEFAULT_PARALLELISM,
    OnProgress,
    Pace,
    no_progress,
    work_on,
)
from tidelog.client.admin import Admin
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.consumer import Consumer
from tidelog.client.descriptions import TopicDescription
from tidelog.client.fetch_codec import FoundOffset
from tidelog.client.log_copies import keep_fences, offsets_of_each
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, OffsetPosition, TopicPartition
from tidelog.phrases import plural
from tidelog.version import installed_version

# All topics except the cluster's internal ones.
ALL_TOPICS = ("*",)
# Bytes that the consumer of one worker fetches ahead, decompressed; a batch may exceed it.
PREFETCH_BYTES = 16 << 20
# How long each high watermark and each start of a log is requested from leaders.
DEFAULT_LEADER_TIMEOUT_MS = 30_000
# How long controllers are asked for the settings of the cluster.
SETTINGS_TIMEOUT_SECONDS = 10.0
# Partitions that an error names.
MAX_NAMED = 20
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """How to back up.

    - `topics`: names, with wildcards as in shells.
    - `incremental`: add what is new to a complete backup.
    - `max_bytes_per_second`: over all partitions; None: no limit.
    - `parallelism`: partitions that are copied at the same time.
    - `leader_timeout_ms`: how long to wait for partitions without a leader. One that still has none
      ends the run before anything is copied.
    - `allow_incomplete`: copy the others instead; these partitions get an `error` in the manifest.
    """

    topics: Sequence[str] = ALL_TOPICS
    incremental: bool = False
    max_bytes_per_second: int | None = None
    parallelism: int = DEFAULT_PARALLELISM
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    leader_timeout_ms: int = DEFAULT_LEADER_TIMEOUT_MS
    allow_incomplete: bool = False


async def create_backup(
    bootstrap: str | Sequence[str],
    path: Path,
    options: CreateOptions | None = None,
    *,
    on_plan: Callable[[int], None] = lambda _: None,
    on_progress: OnProgress = no_progress,
    clock: Clock | None = None,
) -> Manifest:
    """Returns the backup. Its `failures` are partitions of which a part is missing, and its `gaps`
    are records that could not be copied. `on_plan`: called with the number of offsets to copy.
    Raises `BackupError`, `TidelogError` and `OSError`."""
    options = options or CreateOptions()
    clock = clock or SystemClock()
    directory = BackupDirectory(path)
    with directory.locked():
        async with (
            Admin(bootstrap) as admin,
            Consumer(bootstrap, offsets_timeout_ms=options.leader_timeout_ms) as consumer,
        ):
            plan = await _plan(directory, admin, consumer, options, clock)
        tasks = _tasks(plan)
        on_plan(sum(task.before.high_watermark - task.before.next_offset for task in tasks))
        copied = await _copy_all(bootstrap, directory, tasks, options, clock, on_progress)
        topics = tuple(
            replace(topic, partitions=tuple(copied.get(name, p) for name, p in topic.named()))
            for topic in plan.topics
        )
        manifest = replace(plan, topics=topics, ended_at_ms=clock.wall_ms())
        directory.commit(manifest)
    return manifest


async def _plan(
    directory: BackupDirectory,
    admin: Admin,
    consumer: Consumer,
    options: CreateOptions,
    clock: Clock,
) -> Manifest:
    """Returns the backup so far with the high watermarks to reach, which are stored."""
    before, plan = directory.find_manifest(), directory.find_plan()
    cluster_id = (await admin.describe_cluster()).cluster_id
    for found in (before, plan):
        if found is not None and found.cluster_id != cluster_id:
            raise BackupError(
                f"{directory.path} has a backup of cluster {found.cluster_id}, and this is cluster "
                f"{cluster_id}; give another directory"
            )
    if plan is not None:
        if tuple(options.topics) != plan.patterns:
            patterns = " ".join(f"--topics {pattern!r}" for pattern in plan.patterns)
            raise BackupError(
                f"a run in {directory.path} has not ended; continue it with {patterns}, or give "
                "another directory"
            )
        return _merged(plan, before)
    if before is not None and not options.incremental:
        raise BackupError(
            f"{directory.path} has a backup already; add what is new with --incremental, or give "
            "another directory"
        )
    plan = await _capture(admin, consumer, cluster_id, options, clock)
    if before is not None:
        plan = replace(plan, backup_id=before.backup_id, created_at_ms=before.created_at_ms)
    merged = _merged(plan, before)
    directory.write_plan(plan)
    return merged


async def _capture(
    admin: Admin, consumer: Consumer, cluster_id: str, options: CreateOptions, clock: Clock
) -> Manifest:
    chosen = chosen_topics(await admin.list_topics(), options.topics)
    now_ms = clock.wall_ms()
    partitions = [TopicPartition(t.name, n) for t in chosen for n in range(t.partition_count)]
    leaderless: dict[TopicPartition, str] = {}
    ends = await _offsets(consumer, OffsetPosition.LATEST, partitions, leaderless)
    # Afterwards: a log may have started beyond the high watermark that was read before.
    starts = await _offsets(consumer, OffsetPosition.EARLIEST, list(ends), leaderless)
    if leaderless and not (options.allow_incomplete and starts):
        raise _no_leaders(leaderless, len(partitions), options)
    return Manifest(
        backup_id=secrets.token_urlsafe(_ID_BYTES),
        cluster_id=cluster_id,
        tidelog_version=installed_version(),
        patterns=tuple(options.topics),
        created_at_ms=now_ms,
        captured_at_ms=now_ms,
        ended_at_ms=0,
        topics=tuple(_topic(topic, starts, ends, leaderless) for topic in chosen),
        settings=await _settings(admin),
    )


async def _settings(admin: Admin) -> ClusterSettings | None:
    """Returns None if no controller answers, which must not prevent a backup of the records."""
    try:
        async with asyncio.timeout(SETTINGS_TIMEOUT_SECONDS):
            throttle = await admin.describe_throttle()
    except (TimeoutError, TidelogError):
        return None
    return ClusterSettings(throttle.bytes_per_second)


async def _offsets(
    consumer: Consumer,
    position: OffsetPosition,
    partitions: Sequence[TopicPartition],
    leaderless: dict[TopicPartition, str],
) -> dict[TopicPartition, FoundOffset]:
    """Adds the partitions that no leader has answered for to `leaderless`. Raises other errors."""
    found: dict[TopicPartition, FoundOffset] = {}
    async with contextlib.aclosing(offsets_of_each(consumer, partitions, position)) as outcomes:
        async for name, outcome in outcomes:
            if not isinstance(outcome, TidelogError):
                found[name] = outcome
            elif outcome.code is ErrorCode.REQUEST_TIMED_OUT:
                leaderless[name] = "no leader answered when the backup began"
            else:
                raise outcome
    return found


def _no_leaders(
    leaderless: Mapping[TopicPartition, str], partitions: int, options: CreateOptions
) -> TidelogError:
    names = sorted(leaderless)
    named = ", ".join(map(str, names[:MAX_NAMED]))
    more = f" and {len(names) - MAX_NAMED:,} others" if len(names) > MAX_NAMED else ""
    remedy = "leave their topics out with --topics, or copy the others with --allow-incomplete"
    if len(names) == partitions:
        remedy = "no chosen partition has one, so that nothing can be copied"
    return TidelogError(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"{plural(len(names), 'partition')} had no leader that answered within "
        f"{options.leader_timeout_ms / 1000:g} s: {named}{more}; nothing was copied. Run tidelog "
        f"explain to see why, and repeat the command when they have leaders; {remedy}",
    )


def chosen_topics(
    topics: Iterable[TopicDescription], patterns: Sequence[str]
) -> list[TopicDescription]:
    """Returns the topics that match a pattern. Raises UNKNOWN_TOPIC_OR_PARTITION for a pattern that
    matches none, unless it is that for all topics."""
    found = list(topics)
    for pattern in patterns:
        if (pattern,) != ALL_TOPICS and not any(
            fnmatch.fnmatchcase(topic.name, pattern) for topic in found
        ):
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {pattern!r}"
            )
    return [t for t in found if any(fnmatch.fnmatchcase(t.name, p) for p in patterns)]


def _topic(
    topic: TopicDescription,
    starts: Mapping[TopicPartition, FoundOffset],
    ends: Mapping[TopicPartition, FoundOffset],
    leaderless: Mapping[TopicPartition, str],
) -> TopicBackup:
    partitions: list[PartitionBackup] = []
    for number in range(topic.partition_count):
        name = TopicPartition(topic.name, number)
        if name in leaderless:
            partitions.append(_never_copied(number, leaderless[name]))
            continue
        start, end = starts[name], ends[name]
        if {start.topic_id, end.topic_id} != {topic.topic_id}:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {topic.name!r} was deleted and created again just now; repeat the command",
            )
        partitions.append(
            PartitionBackup(
                number, start.offset, start.offset, max(end.offset, start.offset), end.leader_epoch
            )
        )
    return TopicBackup(
        topic.name,
        topic.topic_id,
        topic.partition_count,
        topic.replication_factor,
        dict(topic.config),
        tuple(partitions),
    )


def _never_copied(number: int, error: str) -> PartitionBackup:
    """Returns a partition without a known start or high watermark."""
    return PartitionBackup(number, 0, 0, 0, NO_EPOCH, error=error)


def _merged(plan: Manifest, before: Manifest | None) -> Manifest:
    """Returns the plan with what the backup has already. Topics and partitions that exist no longer
    stay in the backup."""
    if before is None:
        return plan
    topics = {topic.topic: topic for topic in before.topics}
    for topic in plan.topics:
        known = topics.get(topic.topic)
        if known is not None and known.topic_id != topic.topic_id:
            raise BackupError(
                f"topic {topic.topic!r} was deleted and created again since the backup (its id was "
                f"{known.topic_id}, and is {topic.topic_id}); give another directory"
            )
        topics[topic.topic] = topic if known is None else _merged_topic(topic, known)
    return replace(plan, topics=tuple(topics[name] for name in sorted(topics)))


def _merged_topic(plan: TopicBackup, before: TopicBackup) -> TopicBackup:
    partitions = {p.partition: p for p in before.partitions}
    for planned in plan.partitions:
        known = partitions.get(planned.partition)
        if known is None or known.leader_epoch == NO_EPOCH:
            partitions[planned.partition] = planned
        else:
            partitions[planned.partition] = _merged_partition(planned, known)
    return replace(
        plan,
        partition_count=max(plan.partition_count, before.partition_count),
        partitions=tuple(partitions[number] for number in sorted(partitions)),
    )


def _merged_partition(plan: PartitionBackup, before: PartitionBackup) -> PartitionBackup:
    error = plan.error
    if error:
        return replace(before, error=error)
    if plan.high_watermark < before.next_offset:
        error = (
            f"the log ends at offset {plan.high_watermark}, and the backup has records up to "
            f"{before.next_offset - 1}, which an unclean election has lost; give another directory"
        )
    return replace(
        before, high_watermark=plan.high_watermark, leader_epoch=plan.leader_epoch, error=error
    )


async def _copy_all(
    bootstrap: str | Sequence[str],
    directory: BackupDirectory,
    tasks: Sequence[CopyTask],
    options: CreateOptions,
    clock: Clock,
    on_progress: OnProgress,
) -> dict[TopicPartition, PartitionBackup]:
    pace = Pace(options.max_bytes_per_second, clock)
    copied: dict[TopicPartition, PartitionBackup] = {}

    async def work(left: deque[CopyTask]) -> None:
        async with Consumer(bootstrap, prefetch_bytes=PREFETCH_BYTES) as consumer:
            keep_fences(consumer)
            copier = PartitionCopier(consumer, clock, pace, on_progress)
            while left:
                task = left.popleft()
                path = directory.partition_path(task.partition)
                writer = SegmentWriter(path, task.before, options.segment_bytes)
                copied[task.partition] = await copier.copy(task, writer)

    await work_on(tasks, options.parallelism, work)
    return copied


def _tasks(plan: Manifest) -> list[CopyTask]:
    return [
        CopyTask(name, topic.topic_id, before)
        for topic in plan.topics
        for name, before in topic.named()
        if before.next_offset < before.high_watermark and not before.error
    ]
