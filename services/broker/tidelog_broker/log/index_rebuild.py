"""Rebuilds the lost indexes of one segment, a piece at a time."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple

import structlog

from tidelog.log_format import walk_frames
from tidelog_broker.log.disk import Disk, DiskFile
from tidelog_broker.log.indexes import (
    INDEX_SUFFIX,
    NO_TIMESTAMP,
    TIME_INDEX_SUFFIX,
    SegmentIndexes,
    SegmentSummary,
)
from tidelog_broker.log.log_errors import LogCorruptError

# With the smallest batches, one piece takes a thread about 0.1 s of CPU time.
REBUILD_PIECE_BYTES = 1 << 20

_log = structlog.get_logger()


class IndexRebuild:
    """The indexes of all batches of a segment below `position`. They are complete once it
    `is_read`.

    - `summary`: of the segment whose indexes these are.
    - `indexes`: complete ones that are not in files yet; None: they are read.
    - `fault`: damage that was found; None: none so far.
    - `is_done`: `run_piece` has nothing left to do.
    """

    def __init__(
        self,
        disk: Disk,
        path: PurePath,
        summary: SegmentSummary,
        interval_bytes: int,
        indexes: SegmentIndexes | None = None,
    ) -> None:
        self._disk = disk
        self._path = path
        self.summary = summary
        self.indexes = SegmentIndexes(interval_bytes) if indexes is None else indexes
        self.position = 0 if indexes is None else summary.size
        self._max_timestamp_ms = NO_TIMESTAMP
        self.fault: LogCorruptError | None = None
        self.is_done = False
        self._lock = threading.Lock()
        self._is_discarded = False

    @property
    def is_read(self) -> bool:
        return self.position >= self.summary.size or self.fault is not None

    def discard(self) -> None:
        """Writes no file from now on: the segment's content changes, or its name is removed.

        Waits for a thread that is writing, which takes no sync."""
        with self._lock:
            self._is_discarded = True

    def run_piece(self) -> None:
        """Reads the next piece in a thread, and writes the files after the last one; blocks. Raises
        `OSError` if it cannot read."""
        if not self.is_read:
            self.read_piece()
        if self.is_read and not self.is_done:
            with self._lock:
                if self.fault is None and not self._is_discarded:
                    self._write()
            self.is_done = True

    def read_piece(self) -> None:
        """Reads the next piece; blocks. Raises `OSError`."""
        end = self.position + REBUILD_PIECE_BYTES
        file = self._disk.open(self._path)
        try:
            for info in walk_frames(
                file.read_at, self.summary.size, start=self.position, verify=False
            ):
                if info.fault is not None or info.header is None:
                    reason = info.fault or "no header"
                    self.fault = LogCorruptError(self._path, info.position, reason)
                    return
                header = info.header
                self.indexes.note(header.base_offset, self.position, self._max_timestamp_ms)
                self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp_ms)
                self.position += info.size
                if self.position >= end:
                    return
        finally:
            file.close()

    def _write(self) -> None:
        """Without the files, the search after the next opening rebuilds the indexes."""
        offsets, times = self.indexes.encode(self.summary)
        names = [self._path.with_suffix(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        try:
            self._disk.check_append_room()
            for name, data in zip(names, (offsets, times), strict=True):
                _write_unreserved(self._disk, name, data)
        except OSError as error:
            for name in names:
                with suppress(OSError):
                    self._disk.remove(name)
            _log.info("index_not_written", path=str(self._path), why=str(error))


class Restored(NamedTuple):
    """A segment with restored batches.

    - `file`: a handle of its own, by which the caller syncs the file and which it closes.
    - `rebuild`: writes the index files in a thread; None: the segment has none.
    """

    file: DiskFile
    rebuild: IndexRebuild | None


def _write_unreserved(disk: Disk, path: PurePath, data: bytes) -> None:
    """Writes a file that is not worth the space reserved for state files.

    Unlike other writes, `Disk.allocate` fails on a full disk before it takes that. A torn file
    is recognized by its checksum."""
    disk.remove(path)
    disk.allocate(path, len(data))
    file = disk.open(path)
    try:
        file.write_at(0, [data])
    finally:
        file.close()
