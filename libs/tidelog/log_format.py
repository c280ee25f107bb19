"""The layout of a segment file, and functions that walk it. No I/O: the caller passes the function
that reads.

A segment is a sequence of frames, without gaps; a frame is one batch. All integers are little
endian:

    length          u32   of the whole frame, itself included
    tag             4     b"TLB" and the version of this layout, 1
    base_offset     i64   the broker's fields
    leader_epoch    i32
    append_time_ms  i64
    broker_crc32c   u32
    crc32c          u32   the producer's CRC, then the fields it covers, in the order
    codec           u8    in which it covers them
    record_count    i32
    base_timestamp_ms, max_timestamp_ms, producer_id    i64 each
    producer_epoch, base_sequence                       i32 each
    records         the rest

The offsets of a segment's batches have no gaps. `length` has no checksum of its own: a wrong
length breaks either the producer's CRC or the next frame.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.batch import broker_crc32c, producer_crc32c
from tidelog.model import Batch, BatchHeader

FRAME_TAG = b"TLB\x01"
# Four times the largest batch that a topic can allow. A greater length is damage, and no reader
# allocates memory for it.
MAX_FRAME_BYTES = 64 << 20
SEGMENT_SUFFIX = ".log"
OFFSET_DIGITS = 20
MAX_OFFSET = 2**63 - 1
_SEGMENT_NAME = re.compile(rf"([0-9]{{{OFFSET_DIGITS}}}){re.escape(SEGMENT_SUFFIX)}")

_HEADER = struct.Struct("<I4sqiqIIBiqqqii")
_TAG_AT = 4
FRAME_HEADER_BYTES = _HEADER.size
# Bytes of one read, when only headers matter and when all bytes do.
_HEADERS_CHUNK_BYTES = 4 << 10
_VERIFY_CHUNK_BYTES = 1 << 20

ReadAt = Callable[[int, int], bytes]
"""(size, position) → the bytes at this position; fewer only at the end of the file."""


class FrameError(Exception):
    """The bytes at some position are no valid frame; the message says why."""


class Frame(NamedTuple):
    length: int
    header: BatchHeader


class FrameInfo(NamedTuple):
    """One frame, or a range of bytes that is none (`fault` is set). `header` is None if the range
    does not begin with a valid header."""

    position: int
    size: int
    header: BatchHeader | None
    fault: str | None


def segment_name(base_offset: int) -> str:
    return f"{base_offset:0{OFFSET_DIGITS}d}{SEGMENT_SUFFIX}"


def segment_base(name: str) -> int | None:
    """Returns the base offset in the name of a segment file; None: it is no segment's name.

    >>> segment_base("00000000000000000060.log"), segment_base("copy of 00000000000000000060.log")
    (60, None)
    """
    match = _SEGMENT_NAME.fullmatch(name)
    return int(match[1]) if match is not None and int(match[1]) <= MAX_OFFSET else None


def frame_bytes(batch: Batch) -> int:
    return FRAME_HEADER_BYTES + len(batch.records)


def encode_frame_header(batch: Batch) -> bytes:
    """Returns the bytes before `records`. Records are written from their own buffer."""
    return _HEADER.pack(FRAME_HEADER_BYTES + len(batch.records), FRAME_TAG, *batch.header)


def parse_frame(data: bytes | bytearray, at: int, expected_offset: int | None) -> Frame:
    """Parses the frame header at `at`, where `data` must have FRAME_HEADER_BYTES.

    Checks everything except the records and the producer's CRC. Raises `FrameError`."""
    fields = _HEADER.unpack_from(data, at)
    length = fields[0]
    header = BatchHeader(*fields[2:])
    if fields[1] != FRAME_TAG:
        raise FrameError(f"tag {fields[1]!r} where a frame of this version has {FRAME_TAG!r}")
    if not FRAME_HEADER_BYTES <= length <= MAX_FRAME_BYTES:
        raise FrameError(
            f"length {length} is outside {FRAME_HEADER_BYTES} to {MAX_FRAME_BYTES} bytes"
        )
    crc = broker_crc32c(header[0], header[1], header[2], header[4])
    if crc != header.broker_crc32c:
        raise FrameError(
            f"CRC32C of the broker's fields is {crc:#010x}, "
            f"the frame says {header.broker_crc32c:#010x}"
        )
    if header.record_count < 1:
        raise FrameError(f"{header.record_count} records; a batch has at least 1")
    if expected_offset is not None and header.base_offset != expected_offset:
        raise FrameError(f"base offset {header.base_offset} where {expected_offset} follows")
    return Frame(length, header)


def frame_at(read_at: ReadAt, position: int, end: int) -> BatchHeader | None:
    """Returns the header of the frame that begins at `position` and ends at `end`, or None. The
    producer's CRC is not checked."""
    data = read_at(FRAME_HEADER_BYTES, position)
    if len(data) < FRAME_HEADER_BYTES:
        return None
    try:
        length, header = parse_frame(data, 0, None)
    except FrameError:
        return None
    return header if position + length == end else None


def check_records(header: BatchHeader, records: bytes) -> None:
    """Raises `FrameError` unless the producer's CRC matches."""
    crc = producer_crc32c(header, records)
    if crc != header.crc32c:
        raise FrameError(
            f"CRC32C of the batch is {crc:#010x}, its header says {header.crc32c:#010x}"
        )


class _Window:
    """The part of a file that was read last, as a buffer."""

    def __init__(self, read: ReadAt, end: int, chunk_bytes: int) -> None:
        self._read = read
        self._end = end
        self._chunk_bytes = chunk_bytes
        self.data = b""
        self._start = 0

    def locate(self, position: int, size: int) -> int | None:
        """Returns where this range begins in `data`, or None if the file ends before its end."""
        at = position - self._start
        if at >= 0 and at + size <= len(self.data):
            return at
        if position + size > self._end:
            return None
        wanted = min(max(size, self._chunk_bytes), self._end - position)
        self.data = self._read(wanted, position)
        self._start = position
        return 0 if len(self.data) >= size else None


def walk_frames(
    read: ReadAt,
    end: int,
    *,
    start: int = 0,
    expected_offset: int | None = None,
    verify: bool,
) -> Iterator[FrameInfo]:
    """Yields the frames from `start` to `end`. A frame with a fault is the last one, and its size
    is all of the rest. `verify` also checks the producer's CRC, which reads all bytes."""
    window = _Window(read, end, _VERIFY_CHUNK_BYTES if verify else _HEADERS_CHUNK_BYTES)
    position = start
    while position < end:
        header = None
        try:
            at = window.locate(position, FRAME_HEADER_BYTES)
            if at is None:
                raise FrameError(f"{end - position} bytes are too few for a frame's header")
            length, header = parse_frame(window.data, at, expected_offset)
            if position + length > end:
                raise FrameError(f"the frame has {length} bytes, the file {end - position} more")
            if verify:
                at = window.locate(position, length)
                if at is None:
                    raise FrameError("the file became shorter while it was read")
                check_records(header, window.data[at + FRAME_HEADER_BYTES : at + length])
        except FrameError as fault:
            yield FrameInfo(position, end - position, header, str(fault))
            return
        yield FrameInfo(position, length, header, None)
        position += length
        expected_offset = header.next_offset


def is_torn(read: ReadAt, position: int, end: int) -> bool:
    """Whether the bytes are the beginning of a frame whose write was interrupted. An interrupted
    write always leaves a prefix of its data."""
    if end - position < FRAME_HEADER_BYTES:
        return True
    try:
        frame = parse_frame(read(FRAME_HEADER_BYTES, position), 0, None)
    except FrameError:
        return False
    return position + frame.length > end


def find_frame(read: ReadAt, start: int, end: int) -> int | None:
    """Returns the position of the first valid frame header at or after `start`, or None."""
    position = start
    while position + FRAME_HEADER_BYTES <= end:
        data = read(min(_VERIFY_CHUNK_BYTES, end - position), position)
        last = len(data) - FRAME_HEADER_BYTES
        if last < 0:
            return None
        tag_at = data.find(FRAME_TAG, _TAG_AT)
        while tag_at != -1 and tag_at - _TAG_AT <= last:
            try:
                length = parse_frame(data, tag_at - _TAG_AT, None).length
            except FrameError:
                length = MAX_FRAME_BYTES + end
            if position + tag_at - _TAG_AT + length <= end:
                return position + tag_at - _TAG_AT
            tag_at = data.find(FRAME_TAG, tag_at + 1)
        # The next chunk overlaps, so that a header across the boundary is found.
        position += last + 1
    return None


def dump_frames(read: ReadAt, end: int) -> Iterator[FrameInfo]:
    """Yields all frames and damaged ranges from 0 to `end`. After damage the walk continues at the
    next valid frame."""
    position = 0
    while position < end:
        for info in walk_frames(read, end, start=position, verify=True):
            if info.fault is None:
                yield info
                position = info.position + info.size
                continue
            following = find_frame(read, info.position + 1, end)
            position = end if following is None else following
            yield info._replace(size=position - info.position)
