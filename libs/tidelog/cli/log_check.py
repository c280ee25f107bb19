"""Walks the segments of a log and records all damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidelog.batch_slices import decode_slices
from tidelog.errors import TidelogError
from tidelog.log_dump import dump_segment
from tidelog.log_format import FRAME_HEADER_BYTES, FrameInfo
from tidelog.model import Batch
from tidelog.phrases import plural
from tidelog.record_batch import Columns, decode
from tidelog.record_limits import HIGHEST_MAX_BATCH_RECORDS
from tidelog.units import size_text

# Damaged places that are named individually.
MAX_NAMED_FAULTS = 100


class Fault(NamedTuple):
    """A damaged range of bytes in a segment."""

    segment: Path
    position: int
    size_bytes: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.segment} at byte {self.position:,} "
            f"({plural(self.size_bytes, 'byte')}): {self.reason}"
        )


class CheckedFrame(NamedTuple):
    """A frame of a segment.

    - `batch`: None if the frame is damaged or records were not requested.
    - `columns`: None as well if the batch cannot be decoded, or has too many records to list.
    """

    segment: Path
    info: FrameInfo
    batch: Batch | None
    columns: Columns | None


@dataclass(slots=True)
class LogTally:
    """Counts of what was read. `faults` holds the first faults, `fault_count` counts all."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    fault_count: int = 0
    faults: list[Fault] = field(default_factory=list)

    def blame(self, segment: Path, position: int, size_bytes: int, reason: str) -> None:
        self.fault_count += 1
        if len(self.faults) < MAX_NAMED_FAULTS:
            self.faults.append(Fault(segment, position, size_bytes, reason))

    def __str__(self) -> str:
        return (
            f"{plural(self.segments, 'segment')}, {plural(self.batches, 'batch', 'batches')}, "
            f"{plural(self.records, 'record')}, {size_text(self.size_bytes)}"
        )


def walk_segment(segment: Path, tally: LogTally, *, with_records: bool) -> Iterator[CheckedFrame]:
    """Yields the frames of a segment, damaged ranges included, and adds them to the tally."""
    tally.segments += 1
    with segment.open("rb") as file:
        for info in dump_segment(segment):
            tally.size_bytes += info.size
            batch = columns = None
            if info.fault is not None or info.header is None:
                tally.blame(segment, info.position, info.size, info.fault or "no header")
            else:
                tally.batches += 1
                tally.records += info.header.record_count
                if with_records:
                    file.seek(info.position + FRAME_HEADER_BYTES)
                    batch = Batch(info.header, file.read(info.size - FRAME_HEADER_BYTES))
                    columns = _open(segment, info, batch, tally)
            yield CheckedFrame(segment, info, batch, columns)


def _open(segment: Path, info: FrameInfo, batch: Batch, tally: LogTally) -> Columns | None:
    try:
        if batch.header.record_count <= HIGHEST_MAX_BATCH_RECORDS:
            return decode(batch)
        # Written before batches were limited: it is checked, but its records are not listed.
        for _ in decode_slices(batch):
            pass
        return None
    except TidelogError as error:
        tally.blame(segment, info.position, info.size, str(error))
        return None


def check_segments(segments: Sequence[Path], advance: Callable[[int], None]) -> LogTally:
    """Checks checksums, that each batch can be decoded, and that offsets have no gaps.

    Offsets are compared from the name of a segment to its first batch, from batch to batch, and
    from segment to segment.
    """
    tally = LogTally()
    # The expected next offset. None: unknown, at the start and after damage.
    following: int | None = None
    for segment in segments:
        named = _named_offset(segment)
        if named is not None and following is not None and named != following:
            reason = f"the file name has offset {named} where {following} follows"
            tally.blame(segment, 0, 0, reason)
        following = named
        for frame in walk_segment(segment, tally, with_records=True):
            advance(frame.info.size)
            if frame.batch is None:
                following = None
                continue
            header = frame.batch.header
            if following is not None and header.base_offset != following:
                reason = f"base offset {header.base_offset} where {following} follows"
                tally.blame(segment, frame.info.position, frame.info.size, reason)
            following = header.next_offset
    return tally


def _named_offset(segment: Path) -> int | None:
    """Returns the base offset in the file name, or None for a copy under another name."""
    return int(segment.stem) if segment.stem.isdecimal() else None
