"""Checks a part of a segment as it is on the disk, and not in the page cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from tidelog.log_format import MAX_FRAME_BYTES, walk_frames
from tidelog.model import BatchHeader
from tidelog_broker.log.bad_sectors import BadSectorReader
from tidelog_broker.log.disk import Disk
from tidelog_broker.partition.range_digest import RangeSum, RangeSums


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

    Pages in the page cache are dropped first, because they would hide a flipped bit on the disk.
    Pages that were not cached before are dropped again afterwards, so that a pass over the disk
    evicts nothing that readers use."""
    limit = min(end, start.position + max(max_bytes, 1) + MAX_FRAME_BYTES)
    at, checked, fault = start, 0, ""
    headers: list[BatchHeader] = []
    file = disk.open(path)
    try:
        reader = BadSectorReader(file)
        was_cached = len(file.read_cached(1, start.position)) > 0
        file.drop_cached(min(max_bytes, end - start.position), start.position)
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
            file.drop_cached(at.position - start.position, start.position)
    finally:
        file.close()
    return ScrubResult(at, checked, fault, sums.add(headers) if sums is not None else ())
