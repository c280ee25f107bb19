"""The segments of a log."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import PurePath

from tidelog.model import Batch, BatchHeader
from tidelog_broker.log.disk import DiskFile
from tidelog_broker.log.index_rebuild import Restored
from tidelog_broker.log.indexes import SegmentIndexes
from tidelog_broker.log.live_quarantine import LiveQuarantine
from tidelog_broker.log.log_check import LogContent
from tidelog_broker.log.log_errors import AppendOrderError
from tidelog_broker.log.log_reader import LogReader, PositionCache
from tidelog_broker.log.segment import Segment, empty_summary, segment_path
from tidelog_broker.log.segment_files import SegmentFiles
from tidelog_broker.log.segment_scrub import FramePosition, ScrubTarget


class Segments:
    """The segments of a log, oldest first. `OSError` passes through.

    Invariants once there is a segment: there always is one, the last is the active one, and each
    begins where the one before ends. `index_interval_bytes` applies to new segments."""

    def __init__(
        self,
        files: SegmentFiles,
        directory: PurePath,
        content: LogContent,
        index_interval_bytes: int,
    ) -> None:
        self.index_interval_bytes = index_interval_bytes
        self._files = files
        self._directory = directory
        self._positions = PositionCache()
        last = len(content.segments) - 1
        self._all = [
            Segment(
                files,
                segment_path(directory, base),
                base,
                summary,
                index_interval_bytes=index_interval_bytes,
                indexes=content.active_indexes if index == last else None,
            )
            for index, (base, summary) in enumerate(content.segments)
        ]
        self.reader = LogReader(self._all, self._positions)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    @property
    def active(self) -> Segment:
        return self._all[-1]

    @property
    def sealed(self) -> Sequence[Segment]:
        return self._all[:-1]

    @property
    def start_offset(self) -> int:
        return self._all[0].base_offset

    @property
    def end_offset(self) -> int:
        return self._all[-1].summary.next_offset

    @property
    def size_bytes(self) -> int:
        """Most logs have a single segment: a loop avoids creating a generator."""
        size = 0
        for segment in self._all:
            size += segment.size
        return size

    def headers(self, start: int, end: int) -> Iterator[BatchHeader]:
        """Implements `Log.headers`."""
        for segment in self._all:
            if segment.next_offset > start and segment.base_offset < end:
                yield from segment.headers(start, end)

    def unsynced(self, flushed_offset: int, limit: int) -> list[Segment]:
        """Returns the oldest segments that reach beyond the offset, `limit` at most."""
        newest_first = takewhile(
            lambda segment: segment.next_offset > flushed_offset, reversed(self._all)
        )
        return list(newest_first)[: -limit - 1 : -1]

    def share_files(self, files: SegmentFiles) -> None:
        """Closes the files that the segments were opened with, and uses these instead."""
        self._files.close()
        self._files = files
        for segment in self._all:
            segment.share_files(files)

    def write(self, file: DiskFile, batches: Sequence[Batch]) -> None:
        """Appends to the active segment, whose open file this is."""
        active = self.active
        positions = active.write(file, batches)
        for batch, position in zip(batches, positions, strict=True):
            self._positions.put(batch.header.base_offset, active, position)

    def add(self, base_offset: int) -> Segment:
        """Adds a new active segment and seals the one before."""
        if self._all:
            self.active.seal()
        segment = self._create(base_offset)
        self._all.append(segment)
        return segment

    def _create(self, base_offset: int) -> Segment:
        path = segment_path(self._directory, base_offset)
        self._files.disk.open(path, create=True).close()
        return Segment(
            self._files,
            path,
            base_offset,
            empty_summary(base_offset),
            index_interval_bytes=self.index_interval_bytes,
            indexes=SegmentIndexes(self.index_interval_bytes),
        )

    def scrub_target(self, offset: int, known: ScrubTarget | None, *, waits: bool) -> ScrubTarget:
        """Implements `Log.scrub_target`."""
        index = bisect.bisect_right(self._all, offset, key=lambda s: s.base_offset) - 1
        segment = self._all[index]
        if known is not None and known.path == segment.path and known.place.offset == offset:
            place = known.place
        elif offset == segment.base_offset:
            place = FramePosition(0, offset)
        else:
            place = FramePosition(*segment.position_of(offset, waits=waits))
        return ScrubTarget(segment.path, place, segment.size, segment.next_offset)

    def at(self, path: PurePath) -> Segment | None:
        return next((segment for segment in self._all if segment.path == path), None)

    def base_after(self, offset: int) -> int | None:
        """Implements `Log.next_segment`."""
        index = bisect.bisect_right(self._all, offset, key=lambda s: s.base_offset)
        return self._all[index].base_offset if index < len(self._all) else None

    def quarantined(self, check: LiveQuarantine) -> None:
        """Implements the part of `Log.finish_quarantine` that concerns the segment."""
        self._positions.clear()
        segment = self.at(check.path)
        if segment is None or (check.copies and segment.size != check.before.size):
            # The segment was deleted or cut meanwhile.
            check.discard()
            return
        if check.copy is not None:
            self._files.disk.rename(check.copy, check.path)
        segment.quarantined(check)

    def restore(self, batches: Sequence[Batch], *, waits: bool) -> Restored:
        """Overwrites the unreadable batch that covers them."""
        first = batches[0].header.base_offset
        index = bisect.bisect_right(self._all, first, key=lambda s: s.base_offset) - 1
        restored = self._all[index].restore(batches, waits=waits)
        self._positions.clear()
        return restored

    def cut(self, offset: int) -> None:
        """Cuts at an offset above the start. The newest segments go first, so that a stop in
        between leaves no gap."""
        self._positions.clear()
        while self.active.base_offset > offset:
            self.active.remove()
            self._all.pop()
            self._files.disk.sync_directory(self._directory)
        if offset < self.end_offset:
            self.active.truncate(offset)

    def restart_at(self, base_offset: int) -> None:
        """Replaces all segments by an empty one."""
        self._positions.clear()
        for segment in reversed(self._all):
            segment.remove()
            self._files.disk.sync_directory(self._directory)
        self._all[:] = [self._create(base_offset)]

    def drop_oldest(self, count: int) -> None:
        self._positions.clear()
        for _ in range(count):
            self._all.pop(0).remove()

    def close(self) -> None:
        for segment in self._all:
            segment.close()


def require_order(batches: Sequence[Batch], *, offset: int, epoch: int, log: object) -> None:
    """Raises `AppendOrderError` unless the batches continue the log.

    The first one begins at `offset`, each later one where the one before ends, and no leader epoch
    falls. `epoch` is that of the log's last batch."""
    for batch in batches:
        header = batch.header
        if (
            header.base_offset != offset
            or header.record_count < 1
            or header.leader_epoch < max(epoch, 0)
        ):
            raise AppendOrderError(
                f"a batch of {header.record_count} records at offset {header.base_offset} in "
                f"leader epoch {header.leader_epoch} cannot follow; next in {log} is offset "
                f"{offset}, in epoch {epoch} or later"
            )
        offset, epoch = header.next_offset, header.leader_epoch
