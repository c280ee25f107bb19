"""Checks a part of a segment as it is on the disk, and not in the page cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from tidelog.log_format import MAX_FRAME_BYTES, walk_frames
from tidelog.model import BatchHeader
from tidelog_broker.core.partition.range_digest import RangeSum, RangeSums
from tidelog_broker.log.bad_sectors import BadSectorReader
from tidelog_broker.log.disk import Disk, DiskFile


class FramePosition(NamedTuple):
    """Where a frame begins: its position in the segment, and its base offset."""

    position: int
    offset: int


class ScrubTarget(NamedTuple):
    """The next check of a segment.

    - `place`: the next frame to check.
    - `end`, `next_offset`: the position and the offset behind the segment's last frame.
    """

    path: PurePath
    place: FramePosition
    end: int
    next_offset: int


class ScrubResult(NamedTuple):
    """The result of a check.

    - `next`: the first frame that was not checked, or the faulty one.
    - `fault`: what is wrong with it; empty: nothing was found.
    - `ranges`: digests of the ranges whose last batch was checked.
    """

    next: FramePosition
    bytes: int
    fault: str
    ranges: Sequence[RangeSum] = ()


class _DiskReads:
    """Reads a file from the disk, from a position on: drops from the page cache what it reads for
    the first time.

    Nothing behind `end` is read ahead. It would stay, and seem to be in use by readers when the
    next check begins there."""

    def __init__(self, file: DiskFile, start: int, first_bytes: int) -> None:
        self._file = file
        self.end = start
        self._renew(start + first_bytes)

    def read_at(self, size: int, position: int) -> bytes:
        self._renew(position + size)
        return self._file.read_at(size, position)

    def _renew(self, end: int) -> None:
        if end > self.end:
            self._file.drop_cached(end - self.end, self.end)
            self._file.read_ahead(end - self.end, self.end)
            self.end = end


def scrub_stretch(
    disk: Disk,
    path: PurePath,
    start: FramePosition,
    *,
    end: int,
    up_to: int,
    max_bytes: int,
    sums: RangeSums | None = None,
) -> ScrubResult:
    """Checks both checksums of about `max_bytes` of frames from `start` on.

    Only frames below the position `end` are checked, up to the frame that begins at the offset
    `up_to`. They are added to `sums`. An unreadable sector is a fault. Blocks; raises `OSError`.

    Whatever is read is dropped from the page cache first, because that would hide a flipped bit on
    the disk. Dirty pages stay, e.g. one that is shared with batches behind `up_to`: a later pass
    checks them. Pages that were not cached before are dropped again afterwards, so that a pass over
    the disk evicts nothing that readers use."""
    limit = min(end, start.position + max(max_bytes, 1) + MAX_FRAME_BYTES)
    at, checked, fault = start, 0, ""
    headers: list[BatchHeader] = []
    file = disk.open(path)
    try:
        was_cached = len(file.read_cached(1, start.position)) > 0
        reads = _DiskReads(file, start.position, min(max_bytes, end - start.position))
        reader = BadSectorReader(reads)
        frames = walk_frames(
            reader.read_at,
            limit,
            start=start.position,
            expected_offset=start.offset,
            verify=True,
        )
        for info in frames:
            if at.offset >= up_to:
                break
            # The limit cuts no frame off, because the walk stops once `max_bytes` are checked.
            if info.fault is not None or info.header is None:
                fault = info.fault or "no header"
                break
            at = FramePosition(info.position + info.size, info.header.next_offset)
            checked += info.size
            headers.append(info.header)
            if checked >= max_bytes:
                break
        if not was_cached:
            file.drop_cached(reads.end - start.position, start.position)
    finally:
        file.close()
    return ScrubResult(at, checked, fault, sums.add(headers) if sums is not None else ())
