"""A partition's log: segments, leader epochs and producer states, kept consistent with the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from tidelog.log_format import FrameError, frame_bytes
from tidelog.model import Batch, BatchHeader, EpochEnd
from tidelog_broker.core.partition.range_digest import LogDigests
from tidelog_broker.core.partition.replica_log import CachedBatches, ColdDataError
from tidelog_broker.log.clean_shutdown import CleanLog, KnownSegment
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.epoch_file import EpochFile
from tidelog_broker.log.flush import FlushProgress, FlushTicket
from tidelog_broker.log.leader_epochs import EpochEntry, LeaderEpochs
from tidelog_broker.log.log_base import BeforeCut
from tidelog_broker.log.log_check import LogContent, RecoveryReport
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import (
    LogCorruptError,
    LogError,
    LogFailedError,
    LogInterruptedError,
    LogStorageError,
    OffsetOutOfRangeError,
    read_failure,
)
from tidelog_broker.log.log_recovery import load_content
from tidelog_broker.log.log_start import BeforeLoss
from tidelog_broker.log.producer_history import ProducerHistory
from tidelog_broker.log.quarantine import Evidence, discard_evidence
from tidelog_broker.log.repairable_log import RepairableLog
from tidelog_broker.log.retention import is_roll_due
from tidelog_broker.log.segment import Segment
from tidelog_broker.log.segment_files import SegmentFiles
from tidelog_broker.log.segments import Segments, require_order
from tidelog_broker.log.shrinkable_log import ShrinkableLog
from tidelog_broker.log.unsynced_writes import UnsyncedWrites


class Log(RepairableLog, ShrinkableLog):
    """A log on disk, for one thread, except `open` and `FlushTicket.run`.

    Invariants: there is at least one segment; `log_start_offset` ≤ `flushed_offset` ≤
    `log_end_offset`. Methods that change the log raise `LogStorageError`, and `LogFailedError` once
    `failed` is set."""

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
        self._clean_state = (
            content.clean_state._replace(producers=None) if content.clean_state else None
        )
        self._closed = False
        self.directory = directory
        self.failed: LogFailedError | None = None
        self.before_cut = lambda _: None
        self.recovery: RecoveryReport | None = content.recovery
        self._segments = Segments(files, directory, content, config.index_interval_bytes)
        self._progress = FlushProgress(content.log_end_offset, content.epochs.entries)
        self._unsynced_restores = set()
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
        unsynced: UnsyncedWrites = UnsyncedWrites.REWRITTEN,
        check_all: bool = False,
        clean_state: CleanLog | None = None,
        evidence: Evidence = discard_evidence,
        min_end_offset: int = 0,
    ) -> Log:
        """Opens or creates a log. May run in a thread.

        - `recovery_point`: everything below it was flushed before the last stop.
        - `min_end_offset`: everything below it was acknowledged; none of these offsets is used
          again.
        - `before_loss`: called before valid data is cut here.
        - `before_cut`: called later with each offset that the log is to be cut to; raises OSError.
        - `check_all`: check even what a clean stop or the recovery point vouches for. What is
          above the recovery point has been rewritten already.
        - `clean_state`: what `close_cleanly` returned. If the log differs from it, it is read.

        `recovery` has what was found after an unclean stop. Raises `LogStorageError`,
        `UndecidedDamageError` as `unsynced` says, and `LogCorruptError` for damage in trusted
        data."""
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
                clean_state=clean_state,
                evidence=evidence,
                min_end_offset=min_end_offset,
            )
            log = cls(files, directory, config, content, epoch_file)
            log.before_cut = before_cut
            log._start(content, recovery_point)
            log.producers.load(
                content.clean_state.producers if content.clean_state is not None else None
            )
        except OSError as error:
            raise read_failure(error, directory, "open the log in") from error
        return log

    def _start(self, content: LogContent, recovery_point: int) -> None:
        if content.clean_state is not None:
            self._write_epochs()
            return
        self._progress.mark_unsynced(
            max(content.log_start_offset, min(recovery_point, content.log_end_offset))
        )
        if not self._segments:
            self._disk.check_append_room()
            self._disk.make_directory(self.directory)
            self._add_segment(content.log_start_offset)
        self._write_epochs()

    # State.

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
        """Epoch of the last batch, even if that has expired; NO_EPOCH if there never was one."""
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
        """Returns about how many bytes there are from the offset on (0 at the log's end), by memory
        alone. In the active segment it is too large by an index interval and a batch at most."""
        return self._segments.reader.bytes_from(offset)

    def append_time_of(self, offset: int) -> int | None:
        """Returns when the leader appended the batch with the offset, in milliseconds since 1970;
        None if the log does not hold it or memory does not hold its header."""
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
        """Uses these files instead of those that the log was opened with, perhaps in a thread."""
        self._segments.share_files(files)

    def update_config(self, config: LogConfig) -> None:
        self._config = config
        self._segments.index_interval_bytes = config.index_interval_bytes

    # Appending.

    def append(self, batches: Sequence[Batch]) -> None:
        """Appends all batches or none. They are stamped, and their checksums are valid. Raises
        `AppendOrderError` unless they continue the log, and `LogStorageError`. After any other
        error, such as a `MemoryError`, memory may be half changed: the log has `failed`."""
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
        epochs_before = self._epochs.entries if self._starts_epoch(batches) else None
        active = self._segments.active
        try:
            self._disk.check_append_room()
            self._clean_state = None
            added = sum(map(frame_bytes, batches))
            # Uses the batches' time: a follower of old batches must not roll at each append.
            if is_roll_due(active.summary, added, self._config, batches[-1].header.append_time_ms):
                active = self._roll()
            if epochs_before is not None:
                for batch in batches:
                    self._epochs.assign(batch.header.leader_epoch, batch.header.base_offset)
                # Written before the batches: recovery cuts an entry that has no batch.
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
                raise self._fail(second, active.path, "undo a failed append to") from error
            raise LogStorageError.of(error, active.path, "append to") from error
        self.producers.appended(batches, added)
        self.digests.appended(batches)

    def _starts_epoch(self, batches: Sequence[Batch]) -> bool:
        # Epochs never fall, so the last batch suffices.
        return batches[-1].header.leader_epoch != self._epochs.latest

    def _restore_epochs(self, entries: tuple[EpochEntry, ...] | None) -> None:
        """Restores the epochs in memory. The file may be ahead, which opening the log corrects."""
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
        """Returns complete batches that end at or below `up_to`, beginning with the one that holds
        `offset`: as many as fit into `max_bytes` on disk, but at least one if there is one.
        Verifies both checksums of each: a bit may flip under an open log. Raises
        `OffsetOutOfRangeError`, `LogCorruptError` and `LogStorageError`."""
        return self._read(offset, max_bytes, up_to, waits=True).batches

    def read_cached(self, offset: int, *, max_bytes: int, up_to: int) -> CachedBatches:
        """Like `read` without waiting for the disk: only cached batches, perhaps none."""
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
        """Returns the header of the batch that holds the offset. Raises as `headers` does."""
        return self._segments.reader.header_at(offset)

    def headers(self, start: int, end: int) -> Iterator[BatchHeader]:
        """Yields headers between two offsets. Raises `LogCorruptError` and `OSError`."""
        return self._segments.headers(start, end)

    def offset_for_timestamp(
        self, timestamp_ms: int, up_to: int, *, waits: bool = True
    ) -> Batch | None:
        """Returns the first batch with a timestamp at or after `timestamp_ms` if it ends at or
        below `up_to`. Raises `LogCorruptError` and `LogStorageError`, and with `waits` false
        `ColdDataError` if it would have to wait for the disk."""
        try:
            return self._segments.reader.first_at_time(timestamp_ms, up_to, waits=waits)
        except OSError as error:
            raise read_failure(error, self.directory, "search the log in") from error

    # Syncing.

    @property
    def needs_flush(self) -> bool:
        return self._progress.is_behind(self.log_end_offset, self._epochs.entries)

    def begin_flush(self) -> FlushTicket | None:
        """Returns a ticket for at most MAX_FLUSHED_SEGMENTS that are not on disk; None if all are.
        Raises `LogFailedError` if an unfinished flush has failed."""
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
        """Advances `flushed_offset` after `ticket.run()`. A failed fsync marks the log as failed,
        because it is unknown which data is on disk."""
        if not ticket.done:
            raise ValueError("a flush is finished after its ticket has run")
        self._progress.discard(ticket)
        if ticket.error is not None:
            raise self._fail(ticket.error, self.directory, "sync the log in")
        if self.failed is not None:
            # An fsync after a failed one succeeds, even if the kernel has dropped the dirty pages.
            raise self.failed
        self._progress.finish(ticket)

    def flush(self) -> None:
        """Flushes until everything is on disk; blocks."""
        while (ticket := self.begin_flush()) is not None:
            ticket.run()
            self.finish_flush(ticket)

    # Closing.

    def close_cleanly(self, max_producers: int) -> CleanLog | None:
        """Syncs and closes the log. Returns its state for the broker to store: with it the next
        `open` reads no more than the header of the last batch. Returns None if the log has failed,
        is closed already, or has an unfinished sync, which may still fail."""
        if self._closed:
            return None
        try:
            if self.failed is not None:
                return None
            self.flush()
            clean_state = self._clean_state or self._current_state()
            clean_state = clean_state._replace(
                producers=self.producers.snapshot_at_end(max_producers)
            )
            is_synced = all(ticket.done for ticket in self._progress.unfinished)
            return clean_state if is_synced and not self._unsynced_restores else None
        except OSError as error:
            raise LogStorageError.of(error, self.directory, "close the log in") from error
        finally:
            self.close()

    def _current_state(self) -> CleanLog:
        active = self._segments.active
        if not active.has_no_entries:
            # Creating files would dominate the stop of a broker with ten thousand short logs.
            active.write_indexes()
        segments = tuple(KnownSegment(s.base_offset, s.summary) for s in self._segments)
        filled = next((s for s in reversed(list(self._segments)) if s.size), None)
        return CleanLog(segments, None if filled is None else filled.last_batch())

    def delete(self) -> None:
        self.close()
        try:
            self._disk.remove_tree(self.directory)
        except OSError as error:
            raise LogStorageError.of(error, self.directory, "delete the log in") from error

    def close(self) -> None:
        """Closes the log without a sync."""
        self._closed = True
        self._segments.close()

    def _check_usable(self) -> None:
        if self.failed is not None:
            raise self.failed
        if self._closed:
            raise ValueError(f"the log in {self.directory} is closed; open it again")

    def _fail(self, error: OSError, path: PurePath, action: str) -> LogFailedError:
        self.failed = LogFailedError.of(error, path, action)
        return self.failed
