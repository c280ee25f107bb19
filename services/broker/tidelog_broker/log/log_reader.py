"""Reads across the segments of a log."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.log_format import FRAME_HEADER_BYTES
from tidelog.model import Batch, BatchHeader
from tidelog_broker.log.segment import Segment
from tidelog_broker.partition.replica_log import CachedBatches, ColdDataError

MAX_POSITIONS = 256


class BatchPosition(NamedTuple):
    segment: Segment
    position: int


class PositionCache:
    """Positions of batches that were recently appended or read up to.

    A reader at the tail needs no search. Code that cuts or removes a segment clears the cache."""

    def __init__(self) -> None:
        self._places: dict[int, BatchPosition] = {}

    def get(self, offset: int) -> BatchPosition | None:
        return self._places.get(offset)

    def put(self, offset: int, segment: Segment, position: int) -> None:
        self._places[offset] = BatchPosition(segment, position)
        if len(self._places) > MAX_POSITIONS:
            del self._places[next(iter(self._places))]

    def clear(self) -> None:
        self._places.clear()


class LogReader:
    """Reads the segments of a log. `segments` is the log's own list.

    `OSError` passes through. Methods with `waits=False` raise `ColdDataError` instead of waiting
    for the disk."""

    def __init__(self, segments: Sequence[Segment], positions: PositionCache) -> None:
        self._segments = segments
        self._positions = positions

    def read(self, offset: int, max_bytes: int, up_to: int, *, waits: bool) -> CachedBatches:
        """Implements `Log.read` and `Log.read_cached`; `offset` < `up_to` ≤ the log's end."""
        index = self._segment_index(offset)
        segment = self._segments[index]
        place = self._positions.get(offset)
        if place is not None and place.segment is segment:
            position, base = place.position, offset
        else:
            position, base = segment.position_of(offset, waits=waits)
        batches: list[Batch] = []
        while True:
            result = segment.read(
                position,
                base,
                max_bytes=self._bytes_up_to(up_to, segment, position, max_bytes),
                up_to=up_to,
                first_complete=not batches,
                waits=waits,
            )
            batches += result.batches
            base = result.next_offset
            max_bytes -= result.position - position
            at_end = base == segment.next_offset
            if not at_end or base >= up_to or max_bytes < FRAME_HEADER_BYTES:
                self._positions.put(base, segment, result.position)
                return CachedBatches(batches, result.cold)
            index += 1
            segment, position = self._segments[index], 0

    def _bytes_up_to(self, up_to: int, segment: Segment, position: int, max_bytes: int) -> int:
        """Limits a read near the high watermark to the bytes below it, if their end is known."""
        place = self._positions.get(up_to)
        if place is None or place.segment is not segment:
            return max_bytes
        return min(max_bytes, place.position - position)

    def _segment_index(self, offset: int) -> int:
        segments = self._segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return bisect.bisect_right(segments, offset, key=lambda s: s.base_offset) - 1

    def bytes_from(self, offset: int) -> int:
        """Implements `Log.bytes_from`."""
        index = max(self._segment_index(offset), 0)
        segment = self._segments[index]
        place = self._positions.get(offset)
        if place is not None and place.segment is segment:
            within = segment.size - place.position
        else:
            within = segment.bytes_from(offset)
        for later in range(index + 1, len(self._segments)):
            within += self._segments[later].size
        return within

    def header_at(self, offset: int) -> BatchHeader:
        """Implements `Log.header_at`."""
        return self._segments[self._segment_index(offset)].header_of(offset)

    def append_time_of(self, offset: int) -> int:
        """Implements `Log.append_time_of`; also raises `FrameError` and `LogCorruptError`."""
        segment = self._segments[self._segment_index(offset)]
        place = self._positions.get(offset)
        if place is not None and place.segment is segment:
            return segment.cached_header_at(place.position).append_time_ms
        position, _ = segment.position_of(offset, waits=False)
        return segment.cached_header_at(position).append_time_ms

    def first_at_time(self, timestamp_ms: int, up_to: int, *, waits: bool) -> Batch | None:
        """Implements `Log.offset_for_timestamp`."""
        for segment in self._segments:
            if segment.size == 0 or segment.summary.max_timestamp_ms < timestamp_ms:
                continue
            position, base = segment.position_of_time(timestamp_ms, waits=waits)
            found = segment.read(
                position, base, max_bytes=0, up_to=up_to, first_complete=True, waits=waits
            )
            if found.cold is not None:
                raise ColdDataError(found.cold)
            return found.batches[0] if found.batches else None
        return None
