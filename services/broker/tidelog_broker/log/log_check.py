"""Checks the segments of a log that is opened, and makes damaged ranges unreadable."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePath

import structlog

from tidelog.batch import is_damaged
from tidelog.log_format import MAX_FRAME_BYTES, find_frame, is_torn, walk_frames
from tidelog.model import BatchHeader
from tidelog_broker.log.bad_sectors import BadSectorReader, is_unreadable, replace_file
from tidelog_broker.log.clean_shutdown import CleanLog, KnownSegment
from tidelog_broker.log.disk import Disk, DiskFile, copy_bytes
from tidelog_broker.log.epoch_file import epochs_of
from tidelog_broker.log.indexes import SegmentIndexes, SegmentSummary, extend_summary
from tidelog_broker.log.leader_epochs import LeaderEpochs
from tidelog_broker.log.log_errors import UndecidedDamageError
from tidelog_broker.log.log_start import BeforeLoss, remove_segment
from tidelog_broker.log.misplaced_batches import has_misplaced_frame, is_misplaced
from tidelog_broker.log.quarantine import (
    DamagedRange,
    Evidence,
    Fault,
    can_quarantine,
    complete_frame_end,
    damaged_range,
    first_coverable_part,
    has_valid_frame,
    quarantine,
    with_known_epoch,
)
from tidelog_broker.log.segment import (
    empty_summary,
    read_indexes,
    segment_path,
    write_indexes,
)
from tidelog_broker.log.unsynced_writes import UnsyncedWrites

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What the check after an unclean stop found.

    - `truncated_from`: the first offset that was cut, if any was.
    - `lost_data`: more is missing than the end of a write that never returned, so that this replica
      must not count as intact. A torn tail alone is no loss.
    - `damaged`: ranges that are unreadable from now on; their bytes are kept.
    - `lost_by_cut`: more was lost than the `damaged` ranges.
    """

    batches_checked: int
    truncated_from: int | None = None
    bytes_cut: int = 0
    reason: str | None = None
    lost_data: bool = False
    damaged: tuple[DamagedRange, ...] = ()
    lost_by_cut: bool = False

    def as_event(self) -> dict[str, int | str | bool | None]:
        """Returns the fields of a log line."""
        left_out = ("damaged", "lost_by_cut")
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in left_out}
        return {**fields, "damaged_batches": len(self.damaged)}


@dataclass(slots=True)
class LogContent:
    """The content of a log's directory.

    - `clean_state`: what a clean stop had stored, if the log still matches it.
    - `recovery`: None after a clean stop, and for a new log.
    """

    log_start_offset: int
    segments: list[KnownSegment]
    epochs: LeaderEpochs
    clean_state: CleanLog | None = None
    recovery: RecoveryReport | None = None
    active_indexes: SegmentIndexes | None = None

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].summary.next_offset if self.segments else self.log_start_offset


class MisplacedError(Exception):
    """Valid batches lie where they cannot belong to the log: file, position and reason."""


@dataclass(slots=True)
class _Scan:
    """The check of one segment, which is valid up to `summary.size`.

    - `following`: the base offset of the next segment; None: there is none.
    - `epochs`: those of the log up to there.
    """

    file: DiskFile
    path: PurePath
    following: int | None
    epochs: LeaderEpochs
    summary: SegmentSummary
    indexes: SegmentIndexes
    file_bytes: int = 0
    fault: str | None = None
    is_torn: bool = False
    is_frame_at_fault: bool = False
    has_frame_after_fault: bool = False
    unsynced_from: int | None = None


@dataclass(slots=True)
class LogCheck:
    """A check of the segments from the recovery point on. Call `run` once."""

    disk: Disk
    directory: PurePath
    bases: list[int]
    recovery_point: int
    index_interval_bytes: int
    gap: str | None
    before_loss: BeforeLoss
    unsynced: UnsyncedWrites
    check_all: bool
    evidence: Evidence
    min_end_offset: int
    # From the file of leader epochs, which may lack the last ones.
    known_epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    batches: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    trusted: list[KnownSegment] = field(default_factory=list)
    # Set once the segments are arranged: what an earlier check made unreadable, by first offset.
    made_unreadable: dict[int, DamagedRange] | None = None

    def require_order(self, reason: str, path: PurePath | None = None, position: int = 0) -> None:
        """Raises `MisplacedError` if the segments can still be arranged, or that is undecided."""
        may_arrange = self.unsynced.is_only_copy or self.unsynced.is_undecided
        if may_arrange and self.made_unreadable is None:
            raise MisplacedError(path or self.directory, position, reason)

    def run(self, log_start: int, epochs: LeaderEpochs | None) -> LogContent:
        self._trust_below_recovery_point()
        for base in self.bases[len(self.trusted) :]:
            path = segment_path(self.directory, base)
            if is_misplaced(self.disk, path, base):
                self.require_order("it begins with a batch of another offset", path)
        segments = list(self.trusted)
        if epochs is None:
            epochs = epochs_of(self.disk, self.directory, segments)
        known = epochs.entries
        self.known_epochs = LeaderEpochs(known)
        first_checked = len(segments)
        if first_checked < len(self.bases):
            epochs.truncate_from_end(self.bases[first_checked])
        content = LogContent(log_start, segments, epochs)
        for index in range(first_checked, len(self.bases)):
            base = self.bases[index]
            following = self.bases[index + 1] if index + 1 < len(self.bases) else None
            scan = self._scan(base, following, epochs)
            segments.append(KnownSegment(base, scan.summary))
            content.active_indexes = scan.indexes
            if scan.fault is not None:
                if self._has_valid_frame_behind(index, scan.summary.size):
                    path = segment_path(self.directory, base)
                    self.require_order(scan.fault, path, scan.summary.size)
                content.recovery = self._cut(index, scan)
                break
            if following is not None:
                path = segment_path(self.directory, base)
                write_indexes(self.disk, path, scan.indexes, scan.summary)
        self._report_end(content)
        if content.log_end_offset == log_start:
            # No batch is left from which the epochs could be read.
            content.epochs = LeaderEpochs(known)
        content.epochs.clip(content.log_start_offset, content.log_end_offset)
        return content

    def _trust_below_recovery_point(self) -> None:
        """Skips segments below the recovery point, which were synced.

        A segment whose index files do not match it is checked all the same, and so are all later
        ones."""
        if self.check_all or self.made_unreadable:
            return
        for base, following in zip(self.bases, self.bases[1:], strict=False):
            if following > self.recovery_point:
                return
            path = segment_path(self.directory, base)
            found = read_indexes(self.disk.read_file, path, self.index_interval_bytes)
            if found is None:
                return
            summary = found[1]
            if summary.size != self.disk.file_size(path) or summary.next_offset != following:
                return
            if is_misplaced(self.disk, path, base):
                return
            self.trusted.append(KnownSegment(base, summary))

    def _scan(self, base: int, following: int | None, epochs: LeaderEpochs) -> _Scan:
        """Checks the segment at `base`; the next one begins at `following`.

        Damaged ranges become unreadable batches if their end is known. `fault` in the result is
        what has to be cut."""
        path = segment_path(self.directory, base)
        try:
            return self._scan_file(path, base, following, epochs)
        except OSError as error:
            if not is_unreadable(error):
                raise
        # The content of the bad sector is damaged. The copy uses other sectors.
        if not replace_file(self.disk, path):
            _log.error("sector_unreadable", path=str(path))
        self.disk.sync_directory(self.directory)
        epochs.truncate_from_end(base)
        return self._scan_file(path, base, following, epochs)

    def _scan_file(
        self, path: PurePath, base: int, following: int | None, epochs: LeaderEpochs
    ) -> _Scan:
        file = self.disk.open(path)
        indexes = SegmentIndexes(self.index_interval_bytes)
        scan = _Scan(file, path, following, epochs, empty_summary(base), indexes)
        try:
            while True:
                scan.file_bytes = self.disk.file_size(path)
                self._walk(scan)
                if scan.fault is None:
                    scan.fault = self._missing_end(scan.summary.next_offset, following)
                if scan.fault is None:
                    break
                self._require_right_place(scan)
                if not self._quarantine_fault(scan) and not self._cut_end(scan):
                    break
                scan.fault = None
            if self.unsynced.is_kept and not self.check_all and scan.unsynced_from is not None:
                copy_bytes(file, file, scan.unsynced_from, scan.summary.size)
        finally:
            file.close()
        return scan

    def _require_right_place(self, scan: _Scan) -> None:
        """Raises `MisplacedError` if the segments at the fault may not be those of the log."""
        file, following = scan.file, scan.following
        position, expected = scan.summary.size, scan.summary.next_offset
        fault = Fault(position, expected, scan.file_bytes, str(scan.fault))
        is_misplaced = has_misplaced_frame(file.read_at, fault, following, scan.epochs.latest)
        if following is not None and following < expected:
            is_misplaced = True
        elif following is not None and following > max(expected, self.min_end_offset):
            # Only its name shows that the log reached this offset.
            is_misplaced |= not self._has_valid_frame_behind(self.bases.index(following), 0)
        if is_misplaced:
            self.require_order(str(scan.fault), scan.path, position)

    def _cut_end(self, scan: _Scan) -> bool:
        """Cuts what lies behind the last batch of a segment, if the log does not end there.

        Returns True if it did, so that the walk continues."""
        file, path, following = scan.file, scan.path, scan.following
        position, expected = scan.summary.size, scan.summary.next_offset
        if position == scan.file_bytes:
            return False
        is_complete = following == expected
        end = self.min_end_offset if following is None else following
        if not is_complete and not (self.unsynced.is_only_copy and end > expected):
            return False
        if has_valid_frame(file.read_at, position + 1, scan.file_bytes):
            self.require_order(str(scan.fault), path, position)
        size = min(scan.file_bytes - position, MAX_FRAME_BYTES)
        data = BadSectorReader(file).read_at(size, position)
        self.evidence(path, DamagedRange(expected, expected, position, size, str(scan.fault)), data)
        file.truncate(position)
        file.sync()
        _log.warning("segment_end_cut", path=str(path), position=position, why=scan.fault)
        return True

    def _missing_end(self, end: int, following: int | None) -> str | None:
        """Returns what is wrong with a segment that is valid to its end."""
        if following is not None:
            return f"the next segment begins at {following}" if following != end else None
        if self.unsynced.may_lack_end and end < self.min_end_offset:
            acknowledged = self.min_end_offset
            return f"it ends at offset {end}, and records up to {acknowledged} were acknowledged"
        return None

    def _walk(self, scan: _Scan) -> None:
        """Continues the scan to the next fault or to the end of the file."""
        file, epochs, end = scan.file, scan.epochs, scan.file_bytes
        frames = walk_frames(
            file.read_at,
            end,
            start=scan.summary.size,
            expected_offset=scan.summary.next_offset,
            verify=True,
        )
        for info in frames:
            scan.fault = info.fault
            if info.fault is None and info.header is not None:
                epoch = info.header.leader_epoch
                if epoch < epochs.latest:
                    scan.fault = f"leader epoch {epoch} after {epochs.latest}"
            if scan.fault is not None or info.header is None:
                following = find_frame(file.read_at, info.position + 1, end)
                scan.has_frame_after_fault = following is not None
                scan.is_torn = is_torn(file.read_at, info.position, end)
                scan.is_frame_at_fault = info.fault is not None
                return
            self._note(scan, info.header, info.size)

    def _note(self, scan: _Scan, header: BatchHeader, size: int) -> None:
        self.batches += 1
        made = (self.made_unreadable or {}).get(header.base_offset)
        if made is not None and is_damaged(header):
            self.damaged.append(made._replace(next_offset=header.next_offset))
        scan.epochs.assign(header.leader_epoch, header.base_offset)
        summary = scan.summary
        if scan.unsynced_from is None and header.next_offset > self.recovery_point:
            scan.unsynced_from = summary.size
        scan.indexes.note(header.base_offset, summary.size, summary.max_timestamp_ms)
        scan.summary = extend_summary(summary, header, size)

    def _quarantine_fault(self, scan: _Scan) -> bool:
        """Makes the fault an unreadable batch, if possible.

        Returns True if it did, so that the walk continues behind the fault."""
        file, epochs, following = scan.file, scan.epochs, scan.following
        position, expected, end = scan.summary.size, scan.summary.next_offset, scan.file_bytes
        assert scan.fault is not None
        # Beyond the synced or acknowledged offsets a write may have been interrupted.
        min_end_offset = self.min_end_offset if following is None else following
        if position < end:
            if not scan.is_frame_at_fault:
                return False  # valid frames in an impossible order
            fault = Fault(position, expected, end, scan.fault)
            end_offset = following
            if following is None and expected >= min_end_offset and self.unsynced.is_kept:
                end_offset = complete_frame_end(file.read_at, fault)
            damaged = damaged_range(file.read_at, fault, epochs.latest, end_offset, min_end_offset)
        elif min_end_offset > expected:
            damaged = DamagedRange(expected, min_end_offset, position, 0, scan.fault)
        else:
            damaged = None
        if damaged is not None:
            damaged = first_coverable_part(damaged)
        if damaged is None or not can_quarantine(damaged, damaged.position + damaged.size == end):
            return False
        if self.unsynced is UnsyncedWrites.LOST:
            raise UndecidedDamageError(scan.path, position, scan.fault)
        if self.unsynced is UnsyncedWrites.LOST_CUT and expected >= self.recovery_point:
            return False
        self.before_loss()
        damaged = with_known_epoch(damaged, epochs.latest, self.known_epochs)
        latest = max(epochs.latest, self.known_epochs.epoch_at(expected))
        quarantine(file, scan.path, damaged, latest, self.evidence)
        self.damaged.append(damaged)
        return True

    def _cut(self, index: int, scan: _Scan) -> RecoveryReport:
        """Removes everything from the fault on. On disk on return.

        The newest segments go first, so that a crash in between leaves a log without gaps."""
        end_offset, end = scan.summary.next_offset, scan.summary.size
        if self.unsynced.is_kept or self.unsynced is UnsyncedWrites.REWRITTEN:
            lost_data = (
                scan.has_frame_after_fault
                or index + 1 < len(self.bases)
                or (self.unsynced.is_kept and not scan.is_torn)
            )
        else:
            lost_data = self._has_valid_frame_behind(index, end)
        if lost_data:
            self.before_loss()
        if lost_data and self.unsynced.is_kept:
            self._store_cut_evidence(index, scan)
        bytes_cut = scan.file_bytes - end
        for base in reversed(self.bases[index + 1 :]):
            path = segment_path(self.directory, base)
            bytes_cut += self.disk.file_size(path)
            remove_segment(self.disk, path)
            self.disk.sync_directory(self.directory)
        path = segment_path(self.directory, self.bases[index])
        file = self.disk.open(path)
        try:
            file.truncate(end)
            file.sync()
        finally:
            file.close()
        return RecoveryReport(
            self.batches,
            truncated_from=end_offset,
            bytes_cut=bytes_cut,
            reason=f"{path} is valid up to byte {end}, offset {end_offset}: {scan.fault}",
            lost_data=lost_data,
        )

    def _store_cut_evidence(self, index: int, scan: _Scan) -> None:
        """Passes the bytes that are about to be cut to `evidence`, at most MAX_FRAME_BYTES of each
        segment."""
        first, start = scan.summary.next_offset, scan.summary.size
        for base in self.bases[index:]:
            path = segment_path(self.directory, base)
            size = min(self.disk.file_size(path) - start, MAX_FRAME_BYTES)
            if size > 0:
                file = self.disk.open(path)
                try:
                    data = BadSectorReader(file).read_at(size, start)
                finally:
                    file.close()
                first = max(first, base)
                cut = DamagedRange(first, first, start, size, str(scan.fault))
                self.evidence(path, cut, data)
            start = 0

    def _has_valid_frame_behind(self, index: int, position: int) -> bool:
        """Returns whether a valid frame lies behind this position of the segment, or in a later
        one."""
        for base in self.bases[index:]:
            path = segment_path(self.directory, base)
            file = self.disk.open(path)
            try:
                size = self.disk.file_size(path)
                if has_valid_frame(BadSectorReader(file).read_at, position, size):
                    return True
            finally:
                file.close()
            position = 0
        return False

    def _report_end(self, content: LogContent) -> None:
        end = content.log_end_offset
        report = content.recovery or RecoveryReport(self.batches)
        if self.gap is not None:
            report = RecoveryReport(self.batches, end, 0, self.gap, lost_data=True)
            content.recovery = report
        if end < self.recovery_point:
            missing = (
                f"the log ends at offset {end}, and had been synced up to {self.recovery_point}"
            )
            reason = f"{report.reason}; {missing}" if report.reason else missing
            content.recovery = RecoveryReport(
                self.batches, end, report.bytes_cut, reason, lost_data=True
            )
        elif self.bases:
            content.recovery = report
        if self.damaged and content.recovery is not None:
            first = self.damaged[0]
            reason = content.recovery.reason or (
                f"{len(self.damaged)} damaged ranges, the first at offsets "
                f"{first.first_offset} to {first.next_offset - 1}: {first.reason}"
            )
            content.recovery = replace(
                content.recovery,
                reason=reason,
                lost_data=True,
                damaged=tuple(self.damaged),
                lost_by_cut=content.recovery.lost_data,
            )
