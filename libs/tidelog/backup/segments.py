"""Segment files of one partition of a backup: appended, adopted after an interruption, and read.

Functions and methods block on the disk; callers run them in threads, one at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from crc32c import crc32c

from tidelog.backup.directory import sync_directory, writing
from tidelog.backup.manifest import BackupError, Gap, GapReason, PartitionBackup, Segment
from tidelog.batch import is_damaged, is_fence
from tidelog.log_format import (
    FRAME_HEADER_BYTES,
    SEGMENT_SUFFIX,
    FrameError,
    check_records,
    encode_frame_header,
    parse_frame,
    segment_base,
    segment_name,
    walk_frames,
)
from tidelog.model import NO_EPOCH, Batch, BatchHeader

# A segment that reaches this size is closed.
DEFAULT_SEGMENT_BYTES = 256 << 20
PARTIAL_SUFFIX = ".partial"
_BUFFER_BYTES = 1 << 20
# `read_chunk` returns at most this many batches, and about so many bytes.
READ_BATCHES = 64
READ_BYTES = 4 << 20


class PartitionTally:
    """Counts what is copied of a partition, batch by batch."""

    def __init__(self, before: PartitionBackup) -> None:
        self._before = before
        self._closed: list[Segment] = []
        self._open: Segment | None = None
        self._gaps: list[Gap] = []
        self._fences: list[int] = []
        self.next_offset = before.next_offset
        self.last_epoch = before.last_epoch

    @property
    def open_bytes(self) -> int:
        return self._open.size_bytes if self._open is not None else 0

    def note(self, header: BatchHeader, frame_header: bytes, size_bytes: int) -> None:
        """Counts the next batch of the open segment, which it opens if necessary."""
        at = self._open or Segment(header.base_offset, header.base_offset, 0, 0, 0, 0)
        self._open = Segment(
            at.base_offset,
            header.next_offset,
            at.size_bytes + size_bytes,
            at.batches + 1,
            at.records + header.record_count,
            crc32c(frame_header, at.headers_crc32c),
        )
        self.next_offset = header.next_offset
        self.last_epoch = header.leader_epoch
        if is_damaged(header):
            self.last_epoch = NO_EPOCH
            self._gaps.append(Gap(header.base_offset, header.next_offset, GapReason.DAMAGED))
        elif is_fence(header):
            self._fences.append(header.base_offset)

    def close_segment(self) -> None:
        if self._open is not None:
            self._closed.append(self._open)
            self._open = None

    def removed(self, next_offset: int) -> None:
        """Counts the offsets up to this one as removed by retention."""
        self._gaps.append(Gap(self.next_offset, next_offset, GapReason.REMOVED))
        self.next_offset, self.last_epoch = next_offset, NO_EPOCH

    def begin(self, offset: int) -> None:
        """Sets the first offset of a partition of which nothing is copied yet."""
        self._before = replace(self._before, start_offset=offset)
        self.next_offset = offset

    @property
    def is_empty(self) -> bool:
        return not (self._before.segments or self._before.gaps or self._closed or self._gaps) and (
            self._open is None
        )

    def result(self, error: str = "") -> PartitionBackup:
        """Returns the partition with all closed segments."""
        before = self._before
        return replace(
            before,
            next_offset=self.next_offset,
            last_epoch=self.last_epoch,
            segments=(*before.segments, *self._closed),
            gaps=(*before.gaps, *self._gaps),
            fences=(*before.fences, *self._fences),
            error=error,
        )


class SegmentWriter:
    """Appends batches to a partition, behind what `before` has and an interrupted run has left.

    Existing segments never change, so a manifest stays valid until the next one replaces it. A disk
    that rejects a write raises `UnwritableBackupError`, an `OSError`."""

    def __init__(
        self,
        directory: Path,
        before: PartitionBackup,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    ) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._file: BinaryIO | None = None
        self.tally = PartitionTally(before)

    def adopt(self) -> None:
        """Takes over the intact batches of an interrupted run. Raises `OSError`."""
        known = {segment.base_offset for segment in self.tally.result().segments}
        left = sorted(self._left_files(known))
        for base, path in left:
            if base < self.tally.next_offset and not self.tally.is_empty:
                # It repeats what other files have; an interrupted run wrote it before them.
                path.unlink()
                continue
            if not self._adopt_file(base, path):
                path.unlink()

    def _left_files(self, known: set[int]) -> Iterator[tuple[int, Path]]:
        if not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            base = segment_base(path.name.removesuffix(PARTIAL_SUFFIX))
            if base is not None and base not in known:
                yield base, path

    def _adopt_file(self, base: int, path: Path) -> bool:
        """Returns False if the file has no intact batch."""
        end = 0
        with path.open("r+b") as file:
            descriptor = file.fileno()
            size = os.fstat(descriptor).st_size
            for info in walk_frames(
                lambda count, at: os.pread(descriptor, count, at),
                size,
                expected_offset=base,
                verify=True,
            ):
                if info.fault is not None or info.header is None:
                    break
                if not end:
                    self._reach(base)
                frame_header = os.pread(descriptor, FRAME_HEADER_BYTES, info.position)
                self.tally.note(info.header, frame_header, info.size)
                end = info.position + info.size
            if not end:
                return False
            file.truncate(end)
            os.fsync(descriptor)
        final = path.with_name(segment_name(base))
        path.replace(final)
        sync_directory(self._directory)
        self.tally.close_segment()
        return True

    def _reach(self, offset: int) -> None:
        if offset > self.tally.next_offset:
            self.tally.removed(offset)
        elif self.tally.is_empty:
            self.tally.begin(offset)

    def append(self, batches: Sequence[Batch]) -> int:
        """Appends batches; returns their bytes. Raises `BackupError` if they do not continue the
        partition, and `OSError`."""
        written = 0
        for batch in batches:
            header = batch.header
            if self.tally.is_empty and header.base_offset < self.tally.next_offset:
                # The log began within this batch.
                self.tally.begin(header.base_offset)
            if header.base_offset != self.tally.next_offset:
                raise BackupError(
                    f"a batch has offset {header.base_offset} where {self.tally.next_offset} "
                    "follows; create a new backup in another directory"
                )
            if self.tally.open_bytes >= self._segment_bytes:
                self.close()
            frame_header = encode_frame_header(batch)
            with writing(self._directory):
                file = self._file or self._open(header.base_offset)
                file.write(frame_header)
                file.write(batch.records)
            size = len(frame_header) + len(batch.records)
            self.tally.note(header, frame_header, size)
            written += size
        return written

    def skip_to(self, offset: int) -> None:
        """Continues at an offset, because retention has removed the records before it."""
        self.close()
        self._reach(offset)

    def _open(self, base: int) -> BinaryIO:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / (segment_name(base) + PARTIAL_SUFFIX)
        self._file = path.open("wb", buffering=_BUFFER_BYTES)
        return self._file

    def close(self) -> None:
        """Makes the open segment durable under its final name. Raises `OSError`."""
        if self._file is None:
            return
        file, self._file = self._file, None
        path = Path(file.name)
        with writing(path):
            with file:
                file.flush()
                os.fsync(file.fileno())
            path.replace(path.with_name(path.name.removesuffix(PARTIAL_SUFFIX)))
            parents = (self._directory, self._directory.parent, self._directory.parent.parent)
            for directory in parents:
                sync_directory(directory)
        self.tally.close_segment()

    def abandon(self) -> None:
        """Leaves the open segment for the next run."""
        if self._file is not None:
            # On a full disk its buffer cannot be written; the next run copies that part again.
            with contextlib.suppress(OSError):
                self._file.close()


class DamagedSegmentError(BackupError, OSError):
    """A segment file is missing, or does not have the content that the manifest says."""


def segment_path(directory: Path, segment: Segment) -> Path:
    return directory / segment_name(segment.base_offset)


def read_segment(directory: Path, segment: Segment, first_offset: int = 0) -> Iterator[Batch]:
    """Yields the batches that do not end before `first_offset`, and checks all of them.

    Raises `DamagedSegmentError`; what was yielded before is intact."""
    path = segment_path(directory, segment)
    assert path.suffix == SEGMENT_SUFFIX
    position, offset, batches, checksum = 0, segment.base_offset, 0, 0
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            while position < segment.size_bytes:
                frame_header = file.read(FRAME_HEADER_BYTES)
                if len(frame_header) < FRAME_HEADER_BYTES:
                    raise FrameError(f"the file ends here, and has to have {segment.size_bytes}")
                length, header = parse_frame(frame_header, 0, offset)
                records = file.read(length - FRAME_HEADER_BYTES)
                if len(records) < length - FRAME_HEADER_BYTES:
                    raise FrameError(f"the file ends here, and has to have {segment.size_bytes}")
                check_records(header, records)
                checksum = crc32c(frame_header, checksum)
                position, offset, batches = position + length, header.next_offset, batches + 1
                if header.next_offset > first_offset:
                    yield Batch(header, records)
            if file.read(1):
                raise FrameError(f"the file has more than {segment.size_bytes} bytes")
    except FrameError as fault:
        raise DamagedSegmentError(f"{path}, byte {position}: {fault}") from fault
    except OSError as fault:
        raise DamagedSegmentError(f"{path} cannot be read: {fault}") from fault
    found = (position, offset, batches, checksum)
    expected = (segment.size_bytes, segment.next_offset, segment.batches, segment.headers_crc32c)
    if found != expected:
        raise DamagedSegmentError(
            f"{path} is another file than the manifest describes: bytes, next offset, batches and "
            f"checksum of headers are {found}, and have to be {expected}"
        )


def read_partition(
    directory: Path, partition: PartitionBackup, first_offset: int = 0
) -> Iterator[Batch]:
    """Yields the batches of all segments, from the one that has `first_offset` on. Raises as
    `read_segment`."""
    for segment in partition.segments:
        if segment.next_offset > first_offset:
            yield from read_segment(directory, segment, first_offset)


def read_chunk(batches: Iterator[Batch]) -> list[Batch]:
    """Returns the next batches, for a caller that reads in a thread; none: there are no more."""
    chunk: list[Batch] = []
    size = 0
    for batch in islice(batches, READ_BATCHES):
        chunk.append(batch)
        size += len(batch.records)
        if size >= READ_BYTES:
            break
    return chunk
