"""Rebuilds the lost indexes of one segment, a piece at a time."""

from __future__ import annotations

from pathlib import PurePath

from tidelog.log_format import walk_frames
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.indexes import NO_TIMESTAMP, SegmentIndexes, SegmentSummary
from tidelog_broker.log.log_errors import LogCorruptError

# With the smallest batches, one piece takes a thread about 0.1 s of CPU time.
REBUILD_PIECE_BYTES = 1 << 20


class IndexRebuild:
    """The indexes of all batches of a segment below `position`. They are complete once it
    `is_done`.

    - `summary`: of the segment whose indexes these are.
    - `fault`: damage that was found; None: none so far.
    """

    def __init__(
        self, disk: Disk, path: PurePath, summary: SegmentSummary, interval_bytes: int
    ) -> None:
        self._disk = disk
        self._path = path
        self.summary = summary
        self.indexes = SegmentIndexes(interval_bytes)
        self.position = 0
        self._max_timestamp_ms = NO_TIMESTAMP
        self.fault: LogCorruptError | None = None

    @property
    def is_done(self) -> bool:
        return self.position >= self.summary.size or self.fault is not None

    def run_piece(self) -> None:
        """Reads the next piece, perhaps in a thread; blocks. Raises `OSError`."""
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
