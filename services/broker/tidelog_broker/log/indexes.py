"""Sparse indexes of one segment: from offset to file position, and from timestamp to offset.

Both are rebuilt from the segment if the files do not match it. So they are never synced."""

from __future__ import annotations

import bisect
import struct
import sys
from array import array
from typing import NamedTuple

from crc32c import crc32c

from tidelog.model import BatchHeader

NO_TIMESTAMP = -(1 << 63)

INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"

# Tag, CRC32C of all that follows, number of entries, then of the segment: bytes, next offset,
# largest timestamp, append time of its first batch; then two columns of i64.
_FILE_HEADER = struct.Struct("<4sIIqqqq")
_CRC_FROM = 8
_OFFSET_TAG = b"TLO\x01"
_TIME_TAG = b"TLT\x01"


class SegmentSummary(NamedTuple):
    """What a log knows about a segment without opening it. The times of an empty one are
    NO_TIMESTAMP."""

    size: int
    next_offset: int
    max_timestamp_ms: int
    first_append_time_ms: int


class SegmentIndexes:
    """The offset index and the time index of one segment.

    There is at most one entry for each `interval_bytes` of the segment; its first batch needs none.
    A time entry (t, o) means that t is the largest timestamp of all batches below offset o. It is
    added together with an offset entry if t has grown since the previous time entry. So both
    columns of each index grow strictly."""

    def __init__(self, interval_bytes: int) -> None:
        self._interval_bytes = interval_bytes
        self._offsets = array("q")
        self._positions = array("q")
        self._timestamps = array("q")
        self._timestamp_offsets = array("q")

    def note(self, base_offset: int, position: int, max_timestamp_before: int) -> None:
        """Adds the entries of the next batch. It has to be called for every batch, in order."""
        last = self._positions[-1] if self._positions else 0
        if position - last < self._interval_bytes:
            return
        self._offsets.append(base_offset)
        self._positions.append(position)
        if not self._timestamps or max_timestamp_before > self._timestamps[-1]:
            self._timestamps.append(max_timestamp_before)
            self._timestamp_offsets.append(base_offset)

    def position_below(self, offset: int) -> int:
        """Returns the position of the last indexed batch that begins at or below the offset."""
        index = bisect.bisect_right(self._offsets, offset)
        return self._positions[index - 1] if index else 0

    def position_before_time(self, timestamp_ms: int) -> int:
        """Returns the position of an indexed batch below which every timestamp is smaller."""
        later = bisect.bisect_left(self._timestamps, timestamp_ms)
        if later == len(self._timestamps):
            return self._positions[-1] if self._positions else 0
        # The timestamp was first reached between that entry's batch and the one indexed
        # before it.
        index = bisect.bisect_left(self._offsets, self._timestamp_offsets[later])
        return self._positions[index - 1] if index else 0

    def truncate(self, offset: int) -> tuple[int, int]:
        """Removes entries at or above the offset.

        Returns the position of the last entry left and the largest timestamp below it."""
        keep = bisect.bisect_left(self._offsets, offset)
        del self._offsets[keep:], self._positions[keep:]
        keep = bisect.bisect_left(self._timestamp_offsets, offset)
        del self._timestamps[keep:], self._timestamp_offsets[keep:]
        position = self._positions[-1] if self._positions else 0
        return position, self._timestamps[-1] if self._timestamps else NO_TIMESTAMP

    def forget_within(self, first_offset: int, next_offset: int) -> None:
        """Removes entries strictly between two offsets, where no batch begins any more."""
        begin = bisect.bisect_right(self._offsets, first_offset)
        end = bisect.bisect_left(self._offsets, next_offset)
        del self._offsets[begin:end], self._positions[begin:end]

    def note_restored(self, next_offset: int, timestamp_ms: int) -> None:
        """Notes that a batch below `next_offset` has this timestamp now."""
        after = bisect.bisect_left(self._offsets, next_offset)
        if after == len(self._offsets):
            return
        offset = self._offsets[after]
        # Entries from `begin` on include the batch. Those below `end` have no later timestamp.
        begin = bisect.bisect_left(self._timestamp_offsets, offset)
        end = bisect.bisect_right(self._timestamps, timestamp_ms)
        is_known = self._timestamp_offsets[begin : begin + 1] == array("q", [offset])
        is_reached = begin > 0 and self._timestamps[begin - 1] >= timestamp_ms
        if is_reached or (end == begin and is_known):
            return
        self._timestamps[begin:end] = array("q", [timestamp_ms])
        self._timestamp_offsets[begin:end] = array("q", [offset])

    def encode(self, summary: SegmentSummary) -> tuple[bytes, bytes]:
        """Returns the content of the offset index file and of the time index file."""
        return (
            _encode(_OFFSET_TAG, self._offsets, self._positions, summary),
            _encode(_TIME_TAG, self._timestamps, self._timestamp_offsets, summary),
        )

    @classmethod
    def decode(
        cls, offset_file: bytes, time_file: bytes, interval_bytes: int
    ) -> tuple[SegmentIndexes, SegmentSummary] | None:
        """Returns None if the files are incomplete, or belong to different segments."""
        offsets = _decode(_OFFSET_TAG, offset_file)
        times = _decode(_TIME_TAG, time_file)
        if offsets is None or times is None or offsets[2] != times[2]:
            return None
        indexes = cls(interval_bytes)
        indexes._offsets, indexes._positions, summary = offsets
        indexes._timestamps, indexes._timestamp_offsets, _ = times
        return indexes, summary


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _encode(tag: bytes, keys: array[int], values: array[int], summary: SegmentSummary) -> bytes:
    columns = _little_endian(keys[:]).tobytes() + _little_endian(values[:]).tobytes()
    body = _FILE_HEADER.pack(tag, 0, len(keys), *summary)[_CRC_FROM:] + columns
    return tag + crc32c(body).to_bytes(4, "little") + body


def _decode(tag: bytes, data: bytes) -> tuple[array[int], array[int], SegmentSummary] | None:
    if len(data) < _FILE_HEADER.size:
        return None
    found, crc, count, *summary = _FILE_HEADER.unpack_from(data)
    end = _FILE_HEADER.size + 16 * count
    if found != tag or crc32c(data[_CRC_FROM:]) != crc or len(data) != end:
        return None
    middle = _FILE_HEADER.size + 8 * count
    keys, values = array("q"), array("q")
    keys.frombytes(data[_FILE_HEADER.size : middle])
    values.frombytes(data[middle:end])
    return _little_endian(keys), _little_endian(values), SegmentSummary(*summary)


def extend_summary(before: SegmentSummary, header: BatchHeader, size: int) -> SegmentSummary:
    """Returns the summary of the segment with this batch, of `size` bytes in the file, appended."""
    first = before.first_append_time_ms if before.size else header.append_time_ms
    return SegmentSummary(
        before.size + size,
        header.next_offset,
        max(before.max_timestamp_ms, header.max_timestamp_ms),
        first,
    )
