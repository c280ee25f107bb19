"""A partition's log: segments, epochs, and what keeps them in step with the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath

from tidelog.log_format import FrameError, frame_bytes
from tidelog.model import Batch, BatchHeader, EpochEnd
from tidelog_broker.log.append_order import require_order
from tidelog_broker.log.checked_file import write_checked
from tidelog_broker.log.clean_shutdown import CleanLog, KnownSegment
from tidelog_broker.log.config import LogConfig
from tidelog_broker.log.damage_seal import Evidence, discard_evidence
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.epoch_file import EpochFile
from tidelog_broker.log.errors import (
    LogCorruptError,
    LogError,
    LogFailedError,
    LogInterruptedError,
    LogStorageError,
    OffsetOutOfRangeError,
    read_failure,
)
from tidelog_broker.log.flush import FlushProgress, FlushTicket
from tidelog_broker.log.leader_epochs import EpochEntry, LeaderEpochs
from tidelog_broker.log.log_start import LOG_START_KIND, LOG_START_NAME, BeforeLoss
from tidelog_broker.log.producer_history import ProducerHistory
from tidelog_broker.log.recovery import (
    LogContent,
    RecoveryReport,
    load_content,
)
from tidelog_broker.log.repairable_log import RepairableLog
from tidelog_broker.log.retention import (
    MAX_DELETED_AT_ONCE,
    expired_segments,
    is_expired,
    is_roll_due,
)
from tidelog_broker.log.segment import Segment
from tidelog_broker.log.segment_files import SegmentFiles
from tidelog_broker.log.segments import Segments
from tidelog_broker.log.unsynced import Unsynced
from tidelog_broker.partition.range_digest import LogDigests
from tidelog_broker.partition.replica_log import CachedBatches, ColdDataError

BeforeCut = Callable[[int], None]


class Log(RepairableLog):
    """For one thread, but for `open` and `FlushTicket.run`.

    Invariants: there is at least one segment; `log_start_offset` ≤ `flushed_offset` ≤
    `log_end_offset`. Everything that changes the log raises `LogStorageError` where the
    disk refuses, and `LogFailedError` once `failed` is set."""

    def __init__(
        self,
        files: SegmentFiles,
        directory: PurePath,
        config: LogConfig,
        content: LogContent,
        epoch_file: EpochFile,
    ) -> None:
        self._disk = files.disk
        self._config = config
        self._epochs = content.epochs
        self._epoch_file = epoch_file
        # As a clean stop left it, and it still is.
        self._left = content.left._replace(producers=None) if content.left else None
        self._closed = False
        self.directory = directory
        self.failed: LogFailedError | None = None
        self.before_cut: BeforeCut = lambda _: None
        self.recovery: RecoveryReport | None = content.recovery
        self._segments = Segments(files, directory, content, config.index_interval_bytes)
        self._progress = FlushProgress(content.log_end_offset, content.epochs.entries)
        self.producers = ProducerHistory(self._disk, directory, self)
        self.digests = LogDigests(0, content.log_end_offset)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: PurePath,
        config: LogConfig,
        *,
        recovery_point: int,
        files: SegmentFiles | None = None,
        before_loss: BeforeLoss = lambda: None,
        before_cut: BeforeCut = lambda _: None,
        unsynced: Unsynced = Unsynced.REWRITTEN,
        check_all: bool = False,
        left: CleanLog | None = None,
        evidence: Evidence = discard_evidence,
        least_end: int = 0,
    ) -> Log:
        """Opens or creates. `recovery_point`: everything below was flushed before the last
        stop. `least_end`: everything below was acknowledged, so that no offset there is used again.
        `files` is shared by the logs of a broker. `before_loss` is called before
        anything sound is cut here, and `before_cut` from then on with each offset that the
        log is to be cut to; it raises OSError. `unsynced`: what became of writes that were not
        flushed before the last stop. `check_all`: nothing is taken for sound, neither by a
        clean stop nor below the recovery point; what is above it has been written anew already.
        `left`: what `end` returned; where the log is not so any more, it is read.
        `evidence` receives the bytes of damaged batches. May run in a thread.

        What was found after an unclean stop is in `recovery`. Raises `LogStorageError`,
        `UndecidedDamageError` as `unsynced` says, and `LogCorruptError` for damage in what a
        stop left for sound."""
        if files is None:
            files = SegmentFiles(disk)
        epoch_file = EpochFile(disk, directory)
        try:
            content = load_content(
                disk,
                directory,
                epoch_file,
                recovery_point=recovery_point,
                index_interval_bytes=config.index_interval_bytes,
                before_loss=before_loss,
                unsynced=unsynced,
                check_all=check_all,
                left=left,
                evidence=evidence,
                least_end=least_end,
            )
            log = cls(files, directory, config, content, epoch_file)
            log.before_cut = before_cut
            log._start(content, recovery_point)
            log.producers.load(content.left.producers if content.left is not None else None)
        except OSError as error:
            raise read_failure(error, directory, "open the log in") from error
        return log

    def _start(self, content: LogContent, recovery_point: int) -> None:
        if content.left is not None:
            self._write_epochs()
            return
        self._progress.distrust(
            max(content.log_start_offset, min(recovery_point, content.log_end_offset))
        )
        if not self._segments:
            self._disk.check_append_room()
            self._disk.make_directory(self.directory)
            self._add_segment(content.log_start_offset)
        self._write_epochs()

    # What there is.

    @property
    def log_start_offset(self) -> int:
        return self._segments.start_offset

    @property
    def log_end_offset(self) -> int:
        return self._segments.end_offset

    @property
    def flushed_offset(self) -> int:
        return self._progress.flushed_offset

    @property
    def latest_epoch(self) -> int:
        """Of the last batch, also where that has expired; NO_EPOCH if there never was one."""
        return self._epochs.latest

    @property
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        return self._epochs.entries

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes there are from that offset on, by memory alone: 0 at the log's end,
        all below its start; of the active segment at most an index interval and a batch more."""
        return self._segments.reader.bytes_from(offset)

    def append_time_of(self, offset: int) -> int | None:
        """When the leader appended the batch with the offset, in milliseconds since 1970; None
        where memory does not tell. Reads a frame's header, after an index interval at most."""
        if not self.log_start_offset <= offset < self.log_end_offset:
            return None
        try:
            return self._segments.reader.append_time_of(offset)
        except (OSError, LogCorruptError, FrameError, ColdDataError):
            return None

    def epoch_end(self, epoch: int) -> EpochEnd:
        return self._epochs.epoch_end(epoch, self.log_end_offset)

    def epoch_start(self, epoch: int) -> int | None:
        return self._epochs.epoch_start(epoch)

    def share_files(self, files: SegmentFiles) -> None:
        """Instead of those it was opened with, in a thread of its own."""
        self._segments.share_files(files)

    def update_config(self, config: LogConfig) -> None:
        self._config = config
        self._segments.index_interval_bytes = config.index_interval_bytes

    # Appending.

    def append(self, batches: Sequence[Batch]) -> None:
        """All or nothing. The batches are stamped, and their checksums hold.

        Raises `AppendOrderError` unless they continue the log, and `LogStorageError`. Any other
        error, as a `MemoryError`, may leave what memory holds half changed: the log has failed."""
        self._check_usable()
        if not batches:
            return
        require_order(
            batches, offset=self.log_end_offset, epoch=self._epochs.latest, log=self.directory
        )
        try:
            self._append(batches)
        except LogError:
            raise
        except Exception as error:
            self.failed = LogInterruptedError(self.directory, error, "append to")
            raise self.failed from error

    def _append(self, batches: Sequence[Batch]) -> None:
        epochs_before = self._epochs.entries if self._brings_epoch(batches) else None
        active = self._segments.active
        try:
            self._disk.check_append_room()
            self._left = None
            added = sum(map(frame_bytes, batches))
            # By the time of the batches, so that a follower which copies old ones does not roll at
            # each append.
            if is_roll_due(active.summary, added, self._config, batches[-1].header.append_time_ms):
                active = self._roll()
            if epochs_before is not None:
                for batch in batches:
                    self._epochs.assign(batch.header.leader_epoch, batch.header.base_offset)
                # Before the batches: after a stop in between, the entry is cut again.
                self._write_epochs()
            file = active.open()
        except OSError as error:
            self._restore_epochs(epochs_before)
            raise LogStorageError.of(error, active.path, "append to") from error
        try:
            self._segments.write(file, batches)
        except OSError as error:
            self._restore_epochs(epochs_before)
            try:
                file.truncate(active.size)
            except OSError as second:
                raise self._fail(second, active.path, "take back a failed append to") from error
            raise LogStorageError.of(error, active.path, "append to") from error
        self.producers.appended(batches, added)
        self.digests.appended(batches)

    def _brings_epoch(self, batches: Sequence[Batch]) -> bool:
        # Epochs never fall, so the last batch tells.
        return batches[-1].header.leader_epoch != self._epochs.latest

    def _restore_epochs(self, entries: tuple[EpochEntry, ...] | None) -> None:
        """In memory; the file may be ahead, which opening the log puts right."""
        if entries is not None:
            self._epochs = LeaderEpochs(entries)

    def _write_epochs(self) -> None:
        if self._epoch_file.write(self._epochs.entries):
            self._progress.name_changed()

    def _roll(self) -> Segment:
        self.producers.roll([segment.base_offset for segment in self._segments])
        return self._add_segment(self.log_end_offset)

    def _add_segment(self, base_offset: int) -> Segment:
        segment = self._segments.add(base_offset)
        self._progress.name_changed()
        return segment

    # Reading.

    def read(self, offset: int, *, max_bytes: int, up_to: int) -> list[Batch]:
        """Whole batches from the one that holds `offset` on, that end at or below `up_to`:
        as many as fit into `max_bytes` on disk, but at least one where there is one. Checks both
        checksums of each: a bit may flip under an open log. Raises `OffsetOutOfRangeError`,
        `LogCorruptError` and `LogStorageError`."""
        return self._read(offset, max_bytes, up_to, waits=True).batches

    def read_cached(self, offset: int, *, max_bytes: int, up_to: int) -> CachedBatches:
        """The same without waiting for the disk: as many as memory holds, perhaps none."""
        try:
            return self._read(offset, max_bytes, up_to, waits=False)
        except ColdDataError as error:
            return CachedBatches([], error.cold)

    def _read(self, offset: int, max_bytes: int, up_to: int, *, waits: bool) -> CachedBatches:
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, end)
        up_to = min(up_to, end)
        if offset >= up_to:
            return CachedBatches([], None)
        try:
            return self._segments.reader.read(offset, max_bytes, up_to, waits=waits)
        except OSError as error:
            raise read_failure(error, self.directory, "read the log in") from error

    def header_at(self, offset: int) -> BatchHeader:
        """Of the batch that holds the offset, which is in the log. Raises as `headers` does."""
        return self._segments.reader.header_at(offset)

    def headers(self, start: int, end: int) -> Iterator[BatchHeader]:
        """Of all batches between two offsets. Raises `LogCorruptError` and `OSError`."""
        return self._segments.headers(start, end)

    def offset_for_timestamp(
        self, timestamp_ms: int, up_to: int, *, waits: bool = True
    ) -> Batch | None:
        """The first batch with a timestamp at or after that one, if it ends at or below the
        offset `up_to`. Raises `LogCorruptError` and `LogStorageError`, and `ColdDataError`
        where it would have to wait for the disk and does not."""
        try:
            return self._segments.reader.first_at_time(timestamp_ms, up_to, waits=waits)
        except OSError as error:
            raise read_failure(error, self.directory, "search the log in") from error

    # Cutting.

    def truncate_to(self, offset: int) -> None:
        """Cuts the batch that holds `offset`, and all after it. On the disk on return."""
        self._check_usable()
        if offset < self.log_start_offset:
            self.reset_to(offset)
            return
        if offset > self.log_end_offset:
            return
        epochs_before = self._epochs.entries
        try:
            if offset < self.log_end_offset:
                self.before_cut(offset)
                self.producers.begin_cut(offset)
                self._begin_cut()
                self._segments.cut(offset)
                self.digests.cut(self.log_end_offset)
                self.producers.finish_cut()
            self._epochs.truncate_from_end(self.log_end_offset)
            if self._epochs.entries != epochs_before:
                self._epoch_file.replace(self._epochs.entries, sync=True)
        except OSError as error:
            raise self._fail(error, self.directory, f"cut to offset {offset} the log in") from error
        finally:
            self._progress.flushed_offset = min(self.flushed_offset, self.log_end_offset)

    def reset_to(self, offset: int) -> None:
        """Removes everything; the log is empty and begins at `offset`. On the disk on return."""
        self._check_usable()
        try:
            self.before_cut(offset)
            self._begin_cut()
            self.producers.begin_reset(offset)
            # First, so that a start after a stop in between finishes the reset.
            self._write_log_start(offset)
            self.producers.finish_reset(offset)
            self._segments.start_anew(offset)
            self.digests.reset(offset)
            self._progress.name_changed()
            self._epochs = LeaderEpochs()
            self._epoch_file.replace((), sync=True)
        except OSError as error:
            raise self._fail(error, self.directory, "empty the log in") from error
        self._progress.flushed_offset = offset

    def _begin_cut(self) -> None:
        self._left = None
        self._disk.sync_directory(self.directory)
        self._progress.cut_begins()

    def _write_log_start(self, offset: int) -> None:
        path = self.directory / LOG_START_NAME
        write_checked(self._disk, path, LOG_START_KIND, offset, sync=True)

    def delete_old_segments(self, now_ms: int | None, up_to: int, append_ms: int = 0) -> int:
        """Deletes what retention no longer asks for below `up_to`, as `_delete_oldest`. Rolls the
        active one where it is old. `now_ms` None: the clock is in doubt, and nothing is deleted for
        its age. `append_ms`: what appends are dated by, where that is another time."""
        self._check_usable()
        try:
            self._roll_if_old(now_ms, up_to, append_ms or now_ms)
            sealed = list(self._segments.sealed)
            count = expired_segments(
                [segment.summary for segment in sealed],
                self._segments.active.summary,
                config=self._config,
                now_ms=now_ms,
                up_to=up_to,
                last_append_ms=lambda index: sealed[index].last_append_time_ms(),
            )
            return self._delete_oldest(count)
        except OSError as error:
            raise LogStorageError.of(error, self.directory, "delete old segments in") from error

    def delete_below(self, offset: int) -> int:
        """Deletes the segments wholly below an offset, the active one too, as `_delete_oldest`."""
        self._check_usable()
        try:
            active = self._segments.active.summary
            if active.size > 0 and active.next_offset <= offset:
                self._left = None
                self._roll()
            sealed = self._segments.sealed
            count = sum(segment.next_offset <= offset for segment in sealed)
            return self._delete_oldest(count)
        except OSError as error:
            raise LogStorageError.of(error, self.directory, "delete old segments in") from error

    def _delete_oldest(self, count: int) -> int:
        """Returns how many it has deleted: MAX_DELETED_AT_ONCE at most, and the next call more."""
        count = min(count, MAX_DELETED_AT_ONCE)
        if count:
            self._left = None
            start = self._segments.sealed[count - 1].next_offset
            self.producers.begin_deletion(start)
            self._write_log_start(start)
            self._segments.drop_oldest(count)
            self.producers.finish_deletion()
            self._progress.flushed_offset = max(self.flushed_offset, start)
            self._epochs.truncate_from_start(start)
            self._write_epochs()
        return count

    def _roll_if_old(self, now_ms: int | None, up_to: int, append_ms: int | None) -> None:
        active = self._segments.active
        expired = (
            now_ms is not None
            and active.next_offset <= up_to
            and is_expired(active.summary, self._config, now_ms, active.last_append_time_ms)
        )
        if expired or is_roll_due(active.summary, 0, self._config, append_ms):
            self._left = None
            self._roll()

    # Syncing.

    @property
    def needs_flush(self) -> bool:
        return self._progress.is_behind(self.log_end_offset, self._epochs.entries)

    def begin_flush(self) -> FlushTicket | None:
        """What is not on the disk yet, of at most MAX_FLUSHED_SEGMENTS; None: everything is. Raises
        `LogFailedError` where a flush that nobody finished has failed."""
        self._check_usable()
        for ticket in self._progress.unfinished:
            if ticket.error is not None:
                raise self._fail(ticket.error, self.directory, "sync the log in")
        try:
            return self._progress.begin(
                self._disk, self.directory, self._segments, self._epoch_file, self._epochs.entries
            )
        except OSError as error:
            raise LogStorageError.of(error, self.directory, "open for a flush files in") from error

    def finish_flush(self, ticket: FlushTicket) -> None:
        """After `ticket.run()`: moves `flushed_offset`. An fsync that failed marks the log
        failed, because nobody knows what of it is on the disk."""
        if not ticket.done:
            raise ValueError("a flush is finished after its ticket has run")
        self._progress.take_back(ticket)
        if ticket.error is not None:
            raise self._fail(ticket.error, self.directory, "sync the log in")
        if self.failed is not None:
            # A sync after one that failed succeeds, whatever the kernel has given up.
            raise self.failed
        self._progress.finish(ticket)

    def flush(self) -> None:
        """All three steps at once, until everything is on the disk; blocks."""
        while (ticket := self.begin_flush()) is not None:
            ticket.run()
            self.finish_flush(ticket)

    # The end.

    def end(self, room_for_producers: int) -> CleanLog | None:
        """Syncs and closes it. How it is left is for the broker to keep, and for the next `open`,
        which reads no more than the last batch's header then. None: it has failed, is closed
        already, or is synced still, for that may fail."""
        if self._closed:
            return None
        try:
            if self.failed is not None:
                return None
            self.flush()
            left = self._left or self._as_it_is()
            left = left._replace(producers=self.producers.value_at_end(room_for_producers))
            return left if all(ticket.done for ticket in self._progress.unfinished) else None
        except OSError as error:
            raise LogStorageError.of(error, self.directory, "close the log in") from error
        finally:
            self.close()

    def _as_it_is(self) -> CleanLog:
        active = self._segments.active
        if not active.has_no_entries:
            # To make files is what a stop of ten thousand short logs would take its time with.
            active.write_indexes()
        segments = tuple(KnownSegment(s.base_offset, s.summary) for s in self._segments)
        filled = next((s for s in reversed(list(self._segments)) if s.size), None)
        return CleanLog(segments, None if filled is None else filled.last_batch())

    def delete(self) -> None:
        """Removes the whole directory."""
        self.close()
        try:
            self._disk.remove_tree(self.directory)
        except OSError as error:
            raise LogStorageError.of(error, self.directory, "delete the log in") from error

    def close(self) -> None:
        """Syncs nothing."""
        self._closed = True
        self._segments.close()

    def _check_usable(self) -> None:
        if self.failed is not None:
            raise self.failed
        if self._closed:
            raise ValueError(f"the log in {self.directory} is closed; open it anew")

    def _fail(self, error: OSError, path: PurePath, action: str) -> LogFailedError:
        self.failed = LogFailedError.of(error, path, action)
        return self.failed
