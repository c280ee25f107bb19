"""Makes a damaged range of a segment unreadable without losing what is behind it ("Damaged batches"
in docs/internals/log-format.md).

The range gets the header of a valid frame whose codec is `tidelog.batch.DAMAGED_CODEC` and which
covers the same bytes and offsets. So offsets stay, indexes still point at frames, and followers
copy the frame like any other batch. The bytes stay in place except for those under the new header;
an `Evidence` receives all of them first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from tidelog.batch import UNKNOWN_MS, new_damaged_batch
from tidelog.log_format import (
    FRAME_HEADER_BYTES,
    MAX_FRAME_BYTES,
    FrameError,
    ReadAt,
    encode_frame_header,
    find_frame,
    parse_frame,
    walk_frames,
)
from tidelog.model import Batch, BatchHeader
from tidelog.record_limits import HIGHEST_MAX_BATCH_RECORDS
from tidelog_broker.log.disk import DiskFile
from tidelog_broker.log.leader_epochs import LeaderEpochs


class DamagedRange(NamedTuple):
    """A damaged part of a segment: `size` bytes from `position` on, offsets `first_offset` to
    `next_offset` (exclusive).

    `header` is that of the range's first batch if it is valid, or else of the next valid batch."""

    first_offset: int
    next_offset: int
    position: int
    size: int
    reason: str
    header: BatchHeader | None = None


Evidence = Callable[[PurePath, DamagedRange, bytes], None]
"""Stores the bytes of a damaged range of this segment durably, before the range is made unreadable.
A range without known offsets (`next_offset` is `first_offset`) is cut instead. Raises OSError."""


def discard_evidence(path: PurePath, damaged: DamagedRange, data: bytes) -> None:
    """Stores nothing."""


class Fault(NamedTuple):
    """Where a walk along a segment stopped. The segment ends at the position `end`."""

    position: int
    expected_offset: int
    end: int
    reason: str


def damaged_range(
    read: ReadAt, fault: Fault, latest_epoch: int, end_offset: int | None, min_end_offset: int = 0
) -> DamagedRange | None:
    """Returns the range up to the next valid frame, or up to the end of the segment.

    - `end_offset`: the offset at which the segment ends; None: unknown. Then the next valid frame
      defines the end of the range, or else `min_end_offset`.
    - `min_end_offset`: the segment reached at least this offset.

    Returns None if the end of the range is unknown."""
    position, expected, end, reason = fault
    known_end = min_end_offset if end_offset is None else end_offset
    frame = _frame_header(read, fault)
    following = None
    if frame is not None:
        # The common case: the header is valid and the records are not.
        following = valid_frame(read, position + frame.length, end)
        if following is not None and following.base_offset != frame.header.next_offset:
            following = None
        # Only the checksum of the records covers their count.
        at_end = position + frame.length == end and frame.header.next_offset == known_end
        if following is not None or at_end:
            return _range(fault, frame.header.next_offset, frame.length, frame.header)
    start = position + 1
    while (found := find_frame(read, start, end)) is not None:
        header = valid_frame(read, found, end)
        if (
            header is not None
            and header.base_offset > expected
            and header.leader_epoch >= latest_epoch
            and (end_offset is None or header.next_offset <= end_offset)
        ):
            known = header if frame is None else frame.header
            return _range(fault, header.base_offset, found - position, known)
        start = found + 1
    if known_end <= expected:
        return None
    header = None if frame is None else frame.header
    return DamagedRange(expected, known_end, position, end - position, reason, header)


def _range(fault: Fault, next_offset: int, size: int, header: BatchHeader | None) -> DamagedRange:
    return DamagedRange(
        fault.expected_offset, next_offset, fault.position, size, fault.reason, header
    )


class _FrameHeader(NamedTuple):
    length: int
    header: BatchHeader


def _frame_header(read: ReadAt, fault: Fault) -> _FrameHeader | None:
    """Returns the header at the fault if its own checksum and its offset are right."""
    data = read(FRAME_HEADER_BYTES, fault.position)
    if len(data) < FRAME_HEADER_BYTES:
        return None
    try:
        length, header = parse_frame(data, 0, fault.expected_offset)
    except FrameError:
        return None
    return _FrameHeader(length, header) if fault.position + length <= fault.end else None


def complete_frame_end(read: ReadAt, fault: Fault) -> int | None:
    """Returns the next offset of a frame with a valid header that ends where the file does.

    An interrupted write leaves a shorter frame."""
    frame = _frame_header(read, fault)
    if frame is None or fault.position + frame.length != fault.end:
        return None
    if frame.header.record_count > HIGHEST_MAX_BATCH_RECORDS:
        return None  # only the checksum of the records covers it
    return frame.header.next_offset


def valid_frame(read: ReadAt, position: int, end: int) -> BatchHeader | None:
    """Returns the header of the frame at `position` if all its checksums are valid."""
    if position >= end:
        return None
    first = next(iter(walk_frames(read, end, start=position, verify=True)), None)
    return first.header if first is not None and first.fault is None else None


def first_coverable_part(damaged: DamagedRange) -> DamagedRange:
    """Returns the part of a range that one frame can cover.

    That is all of it. A range that is too long is split if it has an offset for each part: the
    first part then has only the first offset."""
    pieces = -(-damaged.size // MAX_FRAME_BYTES)
    if pieces <= 1 or pieces > damaged.next_offset - damaged.first_offset:
        return damaged
    return damaged._replace(
        next_offset=damaged.first_offset + 1, size=-(-damaged.size // pieces), header=None
    )


def with_known_epoch(damaged: DamagedRange, latest_epoch: int, known: LeaderEpochs) -> DamagedRange:
    """Returns the range with the leader epoch that the log has there.

    Applies only to a range without a valid header of its own, and only if this epoch may follow the
    `latest_epoch` before it."""
    header, epoch = damaged.header, known.epoch_at(damaged.first_offset)
    if header is None or header.base_offset == damaged.first_offset:
        return damaged
    if not latest_epoch <= epoch <= header.leader_epoch:
        return damaged
    return damaged._replace(header=header._replace(leader_epoch=epoch))


def has_valid_frame(read: ReadAt, start: int, end: int) -> bool:
    """Returns whether there is a frame at or after `start` whose checksums are all valid."""
    while (found := find_frame(read, start, end)) is not None:
        if valid_frame(read, found, end) is not None:
            return True
        start = found + 1
    return False


def can_quarantine(damaged: DamagedRange, at_end: bool) -> bool:
    """Returns whether one frame can cover the range. At the end of the file it may grow to the size
    of a header."""
    fits = at_end or damaged.size >= FRAME_HEADER_BYTES
    return fits and damaged.size <= MAX_FRAME_BYTES


def quarantine(
    file: DiskFile,
    path: PurePath,
    damaged: DamagedRange,
    latest_epoch: int,
    evidence: Evidence,
) -> Batch:
    """Writes the header of an unreadable batch over the range. On disk on return.

    Returns that batch. Its append time is UNKNOWN_MS if no header is known. Raises `OSError`."""
    data = file.read_at(damaged.size, damaged.position)
    evidence(path, damaged, data)
    header = damaged.header
    batch = new_damaged_batch(
        data[FRAME_HEADER_BYTES:],
        first_offset=damaged.first_offset,
        next_offset=damaged.next_offset,
        leader_epoch=max(latest_epoch, 0) if header is None else header.leader_epoch,
        append_time_ms=UNKNOWN_MS if header is None else header.append_time_ms,
    )
    file.write_at(damaged.position, [encode_frame_header(batch)])
    file.sync()
    return batch
