"""Checks a backup without a cluster: every byte of its segments against checksums and manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.backup.directory import BackupDirectory
from tidelog.backup.manifest import BackupError, Gap, GapReason, Manifest, PartitionBackup
from tidelog.backup.segments import read_segment
from tidelog.backup.selection import matching
from tidelog.batch import is_damaged, is_fence
from tidelog.model import TopicPartition

# Faults that a report names; all are counted.
MAX_NAMED_FAULTS = 100


@dataclass(slots=True)
class Verification:
    """What was read of a backup. `faults` names the first ones."""

    manifest: Manifest
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    fault_count: int = 0
    faults: list[str] = field(default_factory=list)

    def blame(self, reason: str) -> None:
        self.fault_count += 1
        if len(self.faults) < MAX_NAMED_FAULTS:
            self.faults.append(reason)


def verify_backup(
    path: Path,
    on_bytes: Callable[[int], None] = lambda _: None,
    topics: Sequence[str] = ("*",),
) -> Verification:
    """Reads the entire backup, or the topics that match a pattern. `on_bytes`: called with the size
    of each batch. Raises `BackupError` if there is no readable manifest or no such topic."""
    directory = BackupDirectory(path)
    found = Verification(directory.read())
    for topic in matching(found.manifest, topics):
        for name, partition in topic.named():
            found.partitions += 1
            _verify_partition(directory, name, partition, found, on_bytes)
    return found


def _verify_partition(
    directory: BackupDirectory,
    name: TopicPartition,
    partition: PartitionBackup,
    found: Verification,
    on_bytes: Callable[[int], None],
) -> None:
    fences: list[int] = []
    damaged: list[Gap] = []
    is_intact = True
    for segment in partition.segments:
        found.segments += 1
        try:
            for batch in read_segment(directory.partition_path(name), segment):
                header = batch.header
                found.batches += 1
                found.records += header.record_count
                found.size_bytes += len(batch.records)
                on_bytes(len(batch.records))
                if is_fence(header):
                    fences.append(header.base_offset)
                elif is_damaged(header):
                    gap = Gap(header.base_offset, header.next_offset, GapReason.DAMAGED)
                    damaged.append(gap)
        except BackupError as error:
            is_intact = False
            found.blame(str(error))
    if not is_intact:
        return
    _verify_ranges(name, partition, found)
    if fences != list(partition.fences):
        found.blame(f"{name} has other producer fences than the manifest lists")
    if damaged != [gap for gap in partition.gaps if gap.reason is GapReason.DAMAGED]:
        found.blame(f"{name} has other damaged ranges than the manifest lists")


def _verify_ranges(name: TopicPartition, partition: PartitionBackup, found: Verification) -> None:
    """Checks that segments and removed ranges cover the offsets without a gap."""
    covered = [(segment.base_offset, segment.next_offset) for segment in partition.segments]
    covered += [
        (gap.first_offset, gap.next_offset)
        for gap in partition.gaps
        if gap.reason is GapReason.REMOVED
    ]
    offset = partition.start_offset
    for first, following in sorted(covered):
        if first != offset or following <= first:
            found.blame(f"{name} has offset {first} where {offset} follows")
        offset = following
    if offset != partition.next_offset:
        found.blame(f"{name} ends at offset {offset}; the manifest says {partition.next_offset}")
    if partition.next_offset < partition.high_watermark and not partition.error:
        found.blame(
            f"{name} ends at offset {partition.next_offset}, below its high watermark "
            f"{partition.high_watermark}"
        )
