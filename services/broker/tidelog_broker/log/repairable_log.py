"""Finds and repairs damage of a log while it is in use ("Damaged batches" in
docs/internals/log-format.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from tidelog.batch import is_damaged, is_intact
from tidelog.log_format import frame_bytes
from tidelog.model import Batch
from tidelog_broker.core.partition.range_digest import LogDigests
from tidelog_broker.core.partition.replica_log import ColdDataError
from tidelog_broker.log.index_rebuild import Restored
from tidelog_broker.log.leader_epochs import LeaderEpochs
from tidelog_broker.log.live_quarantine import LiveQuarantine
from tidelog_broker.log.log_base import LogBase
from tidelog_broker.log.quarantine import Evidence
from tidelog_broker.log.segment import Segment
from tidelog_broker.log.segment_scrub import ScrubTarget


class RestoreSync:
    """The sync of restored batches. `Log.begin_restore` creates it; call `run` once, in a thread,
    then pass it to `Log.finish_restore`."""

    def __init__(self, restored: Restored) -> None:
        self._restored = restored
        self.error: OSError | None = None

    def run(self) -> None:
        file, rebuild = self._restored
        try:
            file.sync()
            if rebuild is not None:
                # Without index files, a start after a crash would check all later segments.
                rebuild.run_piece()
        except OSError as error:
            self.error = error
        finally:
            file.close()


class RepairableLog(LogBase):
    """The part of `Log` that checks and repairs."""

    # Their segments may be below `flushed_offset`, so that no flush syncs them.
    _unsynced_restores: set[RestoreSync]

    def scrub_target(
        self, offset: int, known: ScrubTarget | None, *, waits: bool = True
    ) -> ScrubTarget | None:
        """Returns the next frame to check on disk; None if all synced ones are checked, or if the
        log was closed while the caller waited.

        It is the batch that holds the offset, or the first of the log. `known` is the last target,
        with its `place` advanced. Raises as `frames_from` does."""
        offset = max(offset, self.log_start_offset)
        if self.closed or offset >= self.flushed_offset:
            return None
        return self._segments.scrub_target(offset, known, waits=waits)

    def has_segment(self, path: PurePath) -> bool:
        return self._segments.at(path) is not None

    def next_segment(self, offset: int) -> int | None:
        """Returns the base offset of the segment after the one with `offset`; None if that is the
        last."""
        return self._segments.base_after(offset)

    def frames_from(self, offset: int, *, waits: bool = True) -> ScrubTarget | None:
        """Returns the batch that holds the offset, synced or not, and its segment.

        Returns None if the log does not hold the offset, or was closed while the caller waited: its
        files may have been replaced. Raises `LogError` and `OSError`, and with `waits` false
        `ColdDataError`."""
        if self.closed or not self.log_start_offset <= offset < self.log_end_offset:
            return None
        return self._segments.scrub_target(offset, None, waits=waits)

    def digest_ranges(self, range_offsets: int) -> None:
        """Keeps digests of ranges of `range_offsets` offsets from now on; 0 disables them."""
        self.digests = LogDigests(range_offsets, self.log_end_offset)

    def begin_quarantine(
        self, path: PurePath, evidence: Evidence, copies: bool
    ) -> LiveQuarantine | None:
        """Prepares to make damaged batches of this segment unreadable.

        Returns None if the segment is deleted or the log is closed. With `copies` the disk cannot
        read all of it. Then a copy replaces its file, and also if its size has changed. Raises
        `OSError`."""
        segment = self._segments.at(path)
        if segment is None or self.closed:
            return None
        copies = copies or self._has_other_size(segment)
        if copies:
            self._check_usable()
            self._disk.open(path, create=True).close()  # it may be missing
            if segment is self._segments.active:
                self._clean_state = None
                self._roll()
        epochs = LeaderEpochs(self._epochs.entries)
        return LiveQuarantine(
            self._disk, path, segment.base_offset, segment.summary, epochs, evidence, copies
        )

    def _has_other_size(self, segment: Segment) -> bool:
        """Returns whether the file was changed from outside: a failed append leaves no bytes behind
        unless the log has failed."""
        if self.failed is not None:
            return False
        try:
            return self._disk.file_size(segment.path) != segment.size
        except FileNotFoundError:
            return True

    def finish_quarantine(self, check: LiveQuarantine) -> None:
        """Applies a check that has run. The log may have changed or been closed meanwhile.

        Raises `LogError` or `OSError` if the segment cannot be repaired."""
        if self.closed:
            check.discard()
            return
        if check.error is not None:
            check.discard()
            raise check.error
        self._clean_state = None
        self._segments.quarantined(check)
        if check.copy is not None:
            self._progress.name_changed()
        for damaged in check.damaged:
            self.digests.forget(damaged.first_offset, damaged.next_offset)

    def restore(self, batches: Sequence[Batch]) -> bool:
        """Does what `begin_restore` and `finish_restore` do. On disk on return; blocks."""
        sync = self.begin_restore(batches, waits=True)
        if sync is None:
            return False
        sync.run()
        self.finish_restore(sync)
        return True

    def begin_restore(self, batches: Sequence[Batch], *, waits: bool) -> RestoreSync | None:
        """Overwrites an unreadable batch with another replica's batches of these offsets.

        Returns None if they are not those that were there, or if the log is closed. Raises
        `LogError`, and with `waits` false `ColdDataError`; then nothing is changed."""
        if self.closed:
            return None
        self._check_usable()
        first = batches[0].header.base_offset
        if not self.log_start_offset <= first < self.log_end_offset:
            return None
        present, cold = self._read(first, 1, self.log_end_offset, waits=waits)
        if cold is not None:
            raise ColdDataError(cold)
        if not matches_unreadable(present[0], batches, self._epochs):
            return None
        try:
            sync = RestoreSync(self._segments.restore(batches, waits=waits))
        except OSError as error:
            raise self._fail(error, self.directory, "restore a batch in") from error
        self._clean_state = None
        self._unsynced_restores.add(sync)
        self.digests.forget(first, batches[-1].header.next_offset)
        self.producers.restored(batches)
        return sync

    def finish_restore(self, sync: RestoreSync) -> None:
        """Raises `LogFailedError` if the batches may not be on disk after `sync.run()`."""
        if sync.error is not None:
            raise self._fail(sync.error, self.directory, "restore a batch in") from sync.error
        self._unsynced_restores.discard(sync)


def matches_unreadable(unreadable: Batch, batches: Sequence[Batch], epochs: LeaderEpochs) -> bool:
    """Returns whether the log held these batches where `unreadable` lies now.

    They have valid checksums, cover the same offsets and bytes, and are of the leader epochs that
    the log has there. All replicas hold the same batch at an offset of one epoch."""
    expected = unreadable.header.base_offset
    for batch in batches:
        header = batch.header
        if header.base_offset != expected or is_damaged(header) or not is_intact(batch):
            return False
        if header.leader_epoch != epochs.epoch_at(expected):
            return False
        expected = header.next_offset
    has_same_extent = expected == unreadable.header.next_offset and (
        sum(map(frame_bytes, batches)) == frame_bytes(unreadable)
    )
    return is_damaged(unreadable.header) and has_same_extent
