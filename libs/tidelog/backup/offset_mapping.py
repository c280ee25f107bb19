"""Which offsets the records of a backup get in a restored partition. Pure.

A new partition begins at offset 0, and only its leader assigns offsets. So a record keeps its
offset only if the backup begins at 0 and nothing before the record is left out: neither a producer
fence, nor damaged or removed records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.backup.manifest import Manifest, PartitionBackup


class KeptRange(NamedTuple):
    """Records with consecutive offsets, from `first_offset` to `next_offset` (excluded). The first
    one gets `restored_offset`."""

    first_offset: int
    next_offset: int
    restored_offset: int


def kept_ranges(partition: PartitionBackup) -> list[KeptRange]:
    """Returns the ranges that a restore writes, in order.

    >>> kept_ranges(PartitionBackup(0, 60, 100, 100, 1, fences=(70,)))
    [KeptRange(first_offset=60, next_offset=70, restored_offset=0), \
KeptRange(first_offset=71, next_offset=100, restored_offset=10)]
    """
    ranges: list[KeptRange] = []
    offset, restored = partition.start_offset, 0
    for first, following in (*_omitted(partition), (partition.next_offset,) * 2):
        if first > offset:
            ranges.append(KeptRange(offset, first, restored))
            restored += first - offset
        offset = max(offset, following)
    return ranges


def keeps_offsets(partition: PartitionBackup) -> bool:
    """Returns whether every record keeps its offset."""
    return all(first == restored for first, _, restored in kept_ranges(partition))


def source_offset(ranges: Sequence[KeptRange], restored_offset: int) -> int | None:
    """Returns the original offset of a restored record; None: there is no such record."""
    for first, following, restored in reversed(ranges):
        if restored <= restored_offset:
            offset = first + restored_offset - restored
            return offset if offset < following else None
    return None


def offsets_document(manifest: Manifest) -> dict[str, dict[str, list[KeptRange]]]:
    """Returns the ranges by topic and partition, for `offsets.json`."""
    return {
        topic.topic: {str(p.partition): kept_ranges(p) for p in topic.partitions}
        for topic in manifest.topics
    }


def _omitted(partition: PartitionBackup) -> Iterator[tuple[int, int]]:
    omitted = [(gap.first_offset, gap.next_offset) for gap in partition.gaps]
    omitted += [(offset, offset + 1) for offset in partition.fences]
    yield from sorted(omitted)
