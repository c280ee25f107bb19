"""Finds and repairs damage of a log while it is in use ("Damaged batches" in
docs/internals/log-format.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import PurePath

from tidelog.batch import is_damaged, is_intact
from tidelog.log_format import frame_bytes
from tidelog.model import Batch
from tidelog_broker.log.clean_shutdown import CleanLog
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.flush import FlushProgress
from tidelog_broker.log.leader_epochs import LeaderEpochs
from tidelog_broker.log.live_quarantine import LiveQuarantine
from tidelog_broker.log.log_errors import LogFailedError
from tidelog_broker.log.producer_history import ProducerHistory
from tidelog_broker.log.quarantine import Evidence
from tidelog_broker.log.segment import Segment
from tidelog_broker.log.segment_scrub import ScrubTarget
from tidelog_broker.log.segments import Segments
from tidelog_broker.partition.range_digest import LogDigests


class RepairableLog(ABC):
    """The part of `Log` that checks and repairs. The fields are those of `Log`."""

    directory: PurePath
    digests: LogDigests
    producers: ProducerHistory
    _disk: Disk
    _segments: Segments
    _epochs: LeaderEpochs
    _progress: FlushProgress
    _clean_state: CleanLog | None

    @property
    @abstractmethod
    def log_start_offset(self) -> int: ...

    @property
    @abstractmethod
    def log_end_offset(self) -> int: ...

    @property
    @abstractmethod
    def flushed_offset(self) -> int: ...

    @abstractmethod
    def read(self, offset: int, *, max_bytes: int, up_to: int) -> list[Batch]: ...

    @abstractmethod
    def _check_usable(self) -> None: ...

    @abstractmethod
    def _fail(self, error: OSError, path: PurePath, action: str) -> LogFailedError: ...

    @abstractmethod
    def _roll(self) -> Segment: ...

    def scrub_target(self, offset: int, known: ScrubTarget | None) -> ScrubTarget | None:
        """Returns the next frame to check on disk; None if all synced ones are checked.

        It is the batch that holds the offset, or the first of the log. `known` is the last target,
        with its `place` advanced. Raises as `frames_from` does."""
        offset = max(offset, self.log_start_offset)
        if offset >= self.flushed_offset:
            return None
        return self._segments.scrub_target(offset, known)

    def has_segment(self, path: PurePath) -> bool:
        return self._segments.at(path) is not None

    def next_segment(self, offset: int) -> int | None:
        """Returns the base offset of the segment after the one with `offset`; None if that is the
        last."""
        return self._segments.base_after(offset)

    def frames_from(self, offset: int) -> ScrubTarget | None:
        """Returns the batch that holds the offset, synced or not, and its segment.

        Returns None if the log does not hold the offset. Raises `LogError` and `OSError`."""
        if not self.log_start_offset <= offset < self.log_end_offset:
            return None
        return self._segments.scrub_target(offset, None)

    def digest_ranges(self, range_offsets: int) -> None:
        """Keeps digests of ranges of `range_offsets` offsets from now on; 0 disables them."""
        self.digests = LogDigests(range_offsets, self.log_end_offset)

    def begin_quarantine(
        self, path: PurePath, evidence: Evidence, copies: bool
    ) -> LiveQuarantine | None:
        """Prepares to make damaged batches of this segment unreadable.

        Returns None if the segment is deleted. With `copies` the disk cannot read all of it, so
        that a copy replaces its file. Raises `OSError`."""
        segment = self._segments.at(path)
        if segment is None:
            return None
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

    def finish_quarantine(self, check: LiveQuarantine) -> None:
        """Applies a check that has run. The log may have changed meanwhile.

        Raises `LogError` or `OSError` if the segment cannot be repaired."""
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
        """Overwrites an unreadable batch with another replica's batches of these offsets.

        On disk on return. Returns False if they are not those that were there. Raises
        `LogError`."""
        self._check_usable()
        first = batches[0].header.base_offset
        if not self.log_start_offset <= first < self.log_end_offset:
            return False
        present = self.read(first, max_bytes=1, up_to=self.log_end_offset)
        if not matches_unreadable(present[0], batches, self._epochs):
            return False
        self._clean_state = None
        try:
            self._segments.restore(batches)
        except OSError as error:
            raise self._fail(error, self.directory, "restore a batch in") from error
        self.digests.forget(first, batches[-1].header.next_offset)
        self.producers.restored(batches)
        return True


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
