"""One segment of a log: a file of frames, and its indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from tidelog.log_format import (
    FRAME_HEADER_BYTES,
    FrameError,
    FrameInfo,
    check_records,
    encode_frame_header,
    frame_bytes,
    parse_frame,
    segment_name,
    walk_frames,
)
from tidelog.model import Batch, BatchHeader
from tidelog_broker.core.partition.replica_log import ColdDataError, ColdRange
from tidelog_broker.log.bad_sectors import is_unreadable
from tidelog_broker.log.clean_shutdown import LastBatch
from tidelog_broker.log.disk import Disk, DiskFile
from tidelog_broker.log.index_rebuild import REBUILD_PIECE_BYTES, IndexRebuild, Restored
from tidelog_broker.log.indexes import (
    INDEX_SUFFIX,
    NO_TIMESTAMP,
    TIME_INDEX_SUFFIX,
    SegmentIndexes,
    SegmentSummary,
    extend_summary,
)
from tidelog_broker.log.log_errors import LogCorruptError
from tidelog_broker.log.segment_files import SegmentFiles

if TYPE_CHECKING:
    from tidelog_broker.log.live_quarantine import LiveQuarantine


class ReadResult(NamedTuple):
    """Batches, and where the next one begins.

    `cold`: where the page cache ended before the requested batches did."""

    batches: list[Batch]
    next_offset: int
    position: int
    cold: ColdRange | None


def segment_path(directory: PurePath, base_offset: int) -> PurePath:
    return directory / segment_name(base_offset)


def empty_summary(base_offset: int) -> SegmentSummary:
    return SegmentSummary(0, base_offset, NO_TIMESTAMP, NO_TIMESTAMP)


def read_indexes(
    read_file: Callable[[PurePath], bytes], path: PurePath, interval_bytes: int
) -> tuple[SegmentIndexes, SegmentSummary] | None:
    """Returns the indexes beside a segment file; None if they are missing or incomplete."""
    try:
        return SegmentIndexes.decode(
            read_file(path.with_suffix(INDEX_SUFFIX)),
            read_file(path.with_suffix(TIME_INDEX_SUFFIX)),
            interval_bytes,
        )
    except OSError as error:
        if isinstance(error, FileNotFoundError) or is_unreadable(error):
            return None
        raise


def read_cached(file: DiskFile, path: PurePath, size: int, position: int) -> bytes:
    """Returns all `size` bytes. Raises `ColdDataError`."""
    data = bytes(file.read_cached(size, position))
    if len(data) < size:
        raise ColdDataError(ColdRange(path, position + len(data), size - len(data)))
    return data


def read_cached_file(disk: Disk, path: PurePath) -> bytes:
    """Raises `ColdDataError`."""
    file = disk.open(path)
    try:
        return read_cached(file, path, disk.file_size(path), 0)
    finally:
        file.close()


def write_indexes(
    disk: Disk, path: PurePath, indexes: SegmentIndexes, summary: SegmentSummary
) -> None:
    offsets, times = indexes.encode(summary)
    disk.write_atomically(path.with_suffix(INDEX_SUFFIX), offsets, sync=False)
    disk.write_atomically(path.with_suffix(TIME_INDEX_SUFFIX), times, sync=False)


class Segment:
    """A segment file. `size` and `next_offset` describe what is known to be in it; bytes beyond,
    after a failed write, do not count.

    The indexes of the active segment are kept here. Those of a sealed segment belong to its open
    file. Only a rebuild of lost ones is kept here: other segments may close the file between two
    pieces of it, again and again."""

    def __init__(
        self,
        files: SegmentFiles,
        path: PurePath,
        base_offset: int,
        summary: SegmentSummary,
        *,
        index_interval_bytes: int,
        indexes: SegmentIndexes | None = None,
    ) -> None:
        self._files = files
        self._interval_bytes = index_interval_bytes
        self._indexes = indexes
        self.path = path
        self.base_offset = base_offset
        self.summary = summary
        # None: it has to be searched.
        self._last: LastBatch | None = None
        self._last_append_ms: int | None = None
        self._rebuild: IndexRebuild | None = None

    @property
    def size(self) -> int:
        return self.summary.size

    @property
    def next_offset(self) -> int:
        return self.summary.next_offset

    def open(self) -> DiskFile:
        return self._files.get(self.path).file

    def close(self) -> None:
        self._discard_rebuild()
        self._files.forget(self.path)

    def share_files(self, files: SegmentFiles) -> None:
        """Uses these files from now on, in which an earlier log may have left an open file of this
        name. It may have been replaced since: appends to it would be lost."""
        files.forget(self.path)
        self._files = files

    # Writing, to the active segment only.

    def write(self, file: DiskFile, batches: Sequence[Batch]) -> list[int]:
        """Appends all batches and returns their positions.

        On an `OSError` a part may be in the file beyond `size`; nothing else has changed."""
        indexes = self._own_indexes()
        buffers: list[bytes] = []
        for batch in batches:
            buffers.append(encode_frame_header(batch))
            buffers.append(batch.records)
        file.write_at(self.size, buffers)
        positions = []
        summary = self.summary
        for batch in batches:
            header = batch.header
            indexes.note(header.base_offset, summary.size, summary.max_timestamp_ms)
            positions.append(summary.size)
            summary = extend_summary(summary, header, frame_bytes(batch))
        self.summary = summary
        if positions:
            self._last = LastBatch(positions[-1], header.broker_crc32c, header.crc32c)
            self._last_append_ms = header.append_time_ms
        return positions

    def truncate(self, offset: int) -> None:
        """Cuts the batch that holds the offset, and all after it. On disk on return."""
        indexes = self._own_indexes()
        position, max_timestamp = indexes.truncate(offset)
        summary = SegmentSummary(
            position, self.base_offset, max_timestamp, self.summary.first_append_time_ms
        )
        for info in self._walk(position, waits=True):
            assert info.header is not None
            if info.header.next_offset > offset:
                summary = summary._replace(next_offset=info.header.base_offset)
                break
            summary = extend_summary(summary, info.header, info.size)
        # The batch that holds the offset may have an entry, too.
        indexes.truncate(summary.next_offset)
        self._last = self._last_append_ms = None
        file = self.open()
        file.truncate(summary.size)
        file.sync()
        self.summary = summary
        # After other appends of the same size the old index files would seem to match.
        self._remove_indexes()

    def seal(self) -> None:
        """Writes the indexes. The segment is no longer appended to."""
        self.write_indexes()
        self._files.get(self.path).indexes = self._indexes
        self._indexes = None

    def quarantined(self, check: LiveQuarantine) -> None:
        """Updates the segment after a check has made damaged batches unreadable.

        Index entries that point into one of them are removed."""
        self._last = None
        grown_ms = self.summary.max_timestamp_ms
        if grown_ms == check.before.max_timestamp_ms:
            grown_ms = NO_TIMESTAMP
        self.summary = self.summary._replace(
            max_timestamp_ms=max(grown_ms, check.found.max_timestamp_ms),
            size=check.found.size if check.copies else self.summary.size,
        )
        if self._indexes is None:
            self._files.forget(self.path)
            self._remove_indexes()
            return
        for damaged in check.damaged:
            self._indexes.forget_within(damaged.first_offset, damaged.next_offset)

    def restore(self, batches: Sequence[Batch], *, waits: bool) -> Restored:
        """Overwrites the batch at the first offset, which is as long as the new ones together."""
        indexes = self._search_indexes(waits=waits)
        position, _ = self.position_of(batches[0].header.base_offset, waits=waits)
        file = self._files.disk.open(self.path)
        try:
            buffers = [data for b in batches for data in (encode_frame_header(b), b.records)]
            file.write_at(position, buffers)
            self._note_restored(batches, indexes)
        except OSError:
            file.close()
            raise
        return Restored(file, self._rebuild)

    def _note_restored(self, batches: Sequence[Batch], indexes: SegmentIndexes) -> None:
        self._last = self._last_append_ms = None
        newest_ms = max(batch.header.max_timestamp_ms for batch in batches)
        self.summary = self.summary._replace(
            max_timestamp_ms=max(self.summary.max_timestamp_ms, newest_ms)
        )
        indexes.note_restored(batches[-1].header.next_offset, newest_ms)
        if self._indexes is None and not self.has_no_entries:
            # The index files have the times of the unreadable batch, and may seem to match.
            self._remove_indexes()
            self._rebuild = self._new_rebuild(indexes)

    def last_batch(self) -> LastBatch | None:
        """Returns None if the segment is empty.

        If nothing was written since it was opened, headers are read from the last index entry
        on."""
        last = self._last
        if last is not None or self.size == 0:
            return last
        position = self._search_indexes(waits=True).position_below(self.next_offset)
        for info in self._walk(position, waits=True):
            assert info.header is not None
            last = LastBatch(info.position, info.header.broker_crc32c, info.header.crc32c)
        return last

    def last_append_time_ms(self) -> int:
        """Returns the append time of its last batch, which may have to be read; NO_TIMESTAMP if
        empty."""
        if self._last_append_ms is None:
            last = self.last_batch()
            if last is None:
                return NO_TIMESTAMP
            data = self.open().read_at(FRAME_HEADER_BYTES, last.position)
            try:
                self._last_append_ms = parse_frame(data, 0, None).header.append_time_ms
            except FrameError as fault:
                raise LogCorruptError(self.path, last.position, str(fault)) from None
        return self._last_append_ms

    @property
    def has_no_entries(self) -> bool:
        """Whether the segment is too short to have index entries."""
        return self.size <= self._interval_bytes

    def write_indexes(self) -> None:
        write_indexes(self._files.disk, self.path, self._own_indexes(), self.summary)

    def remove(self) -> None:
        self.close()
        self._files.disk.remove(self.path)
        self._remove_indexes()

    def _remove_indexes(self) -> None:
        self._discard_rebuild()  # a thread could write them again
        disk = self._files.disk
        disk.remove(self.path.with_suffix(INDEX_SUFFIX))
        disk.remove(self.path.with_suffix(TIME_INDEX_SUFFIX))

    # Reading. With `waits` false, these methods raise `ColdDataError` instead of waiting for the
    # disk.

    def bytes_from(self, offset: int) -> int:
        """Returns about how many bytes there are from the offset on, from memory alone.

        In the active segment it uses the index. In a sealed one it assumes that all records have
        one size."""
        if offset >= self.next_offset:
            return 0
        if self._indexes is not None:
            return self.size - self._indexes.position_below(offset)
        share = (self.next_offset - offset) / (self.next_offset - self.base_offset)
        return min(self.size, round(self.size * share))

    def position_of(self, offset: int, *, waits: bool) -> tuple[int, int]:
        """Returns position and base offset of the batch that holds the offset."""
        position, header = self._find(offset, waits=waits)
        return position, header.base_offset

    def header_of(self, offset: int) -> BatchHeader:
        return self._find(offset, waits=True)[1]

    def _find(self, offset: int, *, waits: bool) -> tuple[int, BatchHeader]:
        indexes = self._search_indexes(waits=waits)
        for info in self._walk(indexes.position_below(offset), waits=waits):
            assert info.header is not None
            if info.header.next_offset > offset:
                return info.position, info.header
        raise LogCorruptError(
            self.path, self.size, f"offset {offset} is missing; it should be in this segment"
        )

    def position_of_time(self, timestamp_ms: int, *, waits: bool) -> tuple[int, int]:
        """Returns position and base offset of the first batch with a timestamp at or after this
        one.

        The caller knows that there is one."""
        indexes = self._search_indexes(waits=waits)
        for info in self._walk(indexes.position_before_time(timestamp_ms), waits=waits):
            assert info.header is not None
            if info.header.max_timestamp_ms >= timestamp_ms:
                return info.position, info.header.base_offset
        raise LogCorruptError(
            self.path,
            self.size,
            f"no batch has a timestamp of {timestamp_ms} or later, as its index says",
        )

    def cached_header_at(self, position: int) -> BatchHeader:
        """Returns the header of the frame that begins there.

        Raises `FrameError`, `OSError` and `ColdDataError`."""
        data = read_cached(self.open(), self.path, FRAME_HEADER_BYTES, position)
        return parse_frame(data, 0, None).header

    def headers(self, start: int, end: int) -> Iterator[BatchHeader]:
        """Yields the headers of its batches between two offsets.

        Opens the file separately, because a log may be opened in a thread. Both checksums are
        verified: that of the records covers producer and sequence."""
        position = self._indexes.position_below(start) if self._indexes is not None else 0
        file = self._files.disk.open(self.path)
        try:
            for info in walk_frames(file.read_at, self.size, start=position, verify=True):
                if info.fault is not None or info.header is None:
                    raise LogCorruptError(self.path, info.position, info.fault or "no header")
                if info.header.base_offset >= end:
                    return
                if info.header.base_offset >= start:
                    yield info.header
        finally:
            file.close()

    def read(
        self,
        position: int,
        base_offset: int,
        *,
        max_bytes: int,
        up_to: int,
        first_complete: bool,
        waits: bool,
    ) -> ReadResult:
        """Returns complete batches from the position on that end at or below `up_to`.

        They fit into `max_bytes`; with `first_complete` the first one need not. With `waits` false
        only batches in the page cache are returned."""
        wanted = min(max(max_bytes, FRAME_HEADER_BYTES), self.size - position)
        file = self.open()
        read = file.read_at if waits else file.read_cached
        data = read(wanted, position)
        view = memoryview(data)
        batches: list[Batch] = []
        at, next_offset, is_all = 0, base_offset, False
        try:
            if waits and len(data) < wanted:
                raise FrameError(f"the file ends {wanted - len(data)} bytes too early")
            while at + FRAME_HEADER_BYTES <= len(data) and next_offset < up_to:
                length, header = parse_frame(data, at, next_offset)
                end = at + length
                self._check_extent(position + end, header.next_offset)
                beyond = header.next_offset > up_to
                if beyond and batches:
                    is_all = True
                    break
                if end > len(data):
                    if batches or not first_complete or end <= wanted:
                        break
                    wanted = length
                    data = read(length, position)
                    view = memoryview(data)
                    if len(data) < length:
                        if waits:
                            raise FrameError("the file ends within the frame")
                        break
                records = bytes(view[at + FRAME_HEADER_BYTES : end])
                check_records(header, records)
                if beyond:
                    # Only this CRC covers the record count. Without it a flipped bit there would
                    # make the batch appear not committed yet.
                    is_all = True
                    break
                batches.append(Batch(header, records))
                at, next_offset = end, header.next_offset
        except FrameError as fault:
            raise LogCorruptError(self.path, position + at, str(fault)) from None
        cold = None
        if len(data) < wanted and next_offset < up_to and not is_all:
            cold = ColdRange(self.path, position + len(data), wanted - len(data))
        return ReadResult(batches, next_offset, position + at, cold)

    def _check_extent(self, end: int, next_offset: int) -> None:
        """Raises unless exactly the last frame ends where the segment does."""
        if end > self.size or (end == self.size) != (next_offset == self.next_offset):
            raise FrameError(
                f"the frame ends at byte {end} and offset {next_offset}, "
                f"the segment at byte {self.size} and offset {self.next_offset}"
            )

    def _walk(self, position: int, *, waits: bool) -> Iterator[FrameInfo]:
        file = self.open()
        read = file.read_at if waits else partial(read_cached, file, self.path)
        for info in walk_frames(read, self.size, start=position, verify=False):
            if info.fault is not None:
                raise LogCorruptError(self.path, info.position, info.fault)
            yield info

    def _own_indexes(self) -> SegmentIndexes:
        if self._indexes is None:
            self._indexes = self._load_indexes(waits=True)
        return self._indexes

    def _search_indexes(self, *, waits: bool) -> SegmentIndexes:
        if self._indexes is not None:
            return self._indexes
        opened = self._files.get(self.path)
        if opened.indexes is None:
            opened.indexes = self._load_indexes(waits=waits)
        return opened.indexes

    def _load_indexes(self, *, waits: bool) -> SegmentIndexes:
        if self.has_no_entries:
            return SegmentIndexes(self._interval_bytes)
        rebuild = self._rebuild
        if rebuild is None or rebuild.summary != self.summary:
            disk = self._files.disk
            read_file = disk.read_file if waits else partial(read_cached_file, disk)
            found = read_indexes(read_file, self.path, self._interval_bytes)
            if found is not None and found[1] == self.summary:
                return found[0]
            self._discard_rebuild()
            rebuild = self._rebuild = self._new_rebuild()
        return self._rebuilt(rebuild, waits=waits)

    def _new_rebuild(self, indexes: SegmentIndexes | None = None) -> IndexRebuild:
        return IndexRebuild(
            self._files.disk, self.path, self.summary, self._interval_bytes, indexes
        )

    def _discard_rebuild(self) -> None:
        if self._rebuild is not None:
            self._rebuild.discard()
            self._rebuild = None

    def _rebuilt(self, rebuild: IndexRebuild, *, waits: bool) -> SegmentIndexes:
        if rebuild.is_done:
            self._rebuild = None
        elif not waits:
            piece = self.path, rebuild.position, REBUILD_PIECE_BYTES
            raise ColdDataError(ColdRange(*piece, rebuild.run_piece))
        elif not rebuild.is_read:
            rebuild = self._new_rebuild()  # a thread may be using the other one
            while not rebuild.is_read:
                rebuild.read_piece()
        if rebuild.fault is not None:
            raise rebuild.fault
        return rebuild.indexes
