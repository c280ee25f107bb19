"""Batches, and partitions of backups that are written from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tidelog.backup.manifest import Manifest, PartitionBackup, TopicBackup
from tidelog.backup.segments import SegmentWriter
from tidelog.batch import new_fence, stamp
from tidelog.model import Batch
from tidelog.record_batch import encode

EMPTY = PartitionBackup(0, 0, 0, 0, 1)


def batch(offset: int, count: int = 2, epoch: int = 1) -> Batch:
    values: list[bytes | None] = [b"value %d" % (offset + index) for index in range(count)]
    return stamp(
        encode(values, timestamps_ms=list(range(1_000, 1_000 + count))),
        base_offset=offset,
        leader_epoch=epoch,
        append_time_ms=2_000,
    )


def fence(offset: int) -> Batch:
    return stamp(new_fence(1 << 62, 0, 2_000), base_offset=offset, leader_epoch=1, append_time_ms=2)


def written(
    directory: Path,
    batches: Sequence[Batch],
    before: PartitionBackup = EMPTY,
    segment_bytes: int = 1 << 20,
) -> PartitionBackup:
    """Writes batches behind those of `before`; the high watermark is their end."""
    writer = SegmentWriter(directory, before, segment_bytes)
    writer.append(batches)
    writer.close()
    found = writer.tally.result()
    return replace(found, high_watermark=found.next_offset)


def manifest_of(partition: PartitionBackup, topic: str = "sea") -> Manifest:
    of_topic = TopicBackup(topic, "an-id", 1, 3, {"retention_ms": "1000"}, (partition,))
    return Manifest("a-backup", "a-cluster", "0.1.0", ("*",), 1, 2, 3, (of_topic,))
