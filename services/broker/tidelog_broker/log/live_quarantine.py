"""Makes the damaged batches of one segment unreadable while its log is in use. So the only copy of
a partition stays readable and writable ("Damaged batches" in docs/internals/log-format.md)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePath

from tidelog.log_format import FRAME_HEADER_BYTES, MAX_FRAME_BYTES, walk_frames
from tidelog.model import NO_EPOCH
from tidelog_broker.log.bad_sectors import BadSectorReader, copy_readable
from tidelog_broker.log.disk import TEMPORARY_SUFFIX, Disk, DiskFile
from tidelog_broker.log.indexes import SegmentSummary, extend_summary
from tidelog_broker.log.leader_epochs import LeaderEpochs
from tidelog_broker.log.log_errors import LogCorruptError, LogError, read_failure
from tidelog_broker.log.misplaced_batches import has_misplaced_frame
from tidelog_broker.log.quarantine import (
    DamagedRange,
    Evidence,
    Fault,
    can_quarantine,
    damaged_range,
    first_coverable_part,
    quarantine,
    with_known_epoch,
)
from tidelog_broker.log.segment import empty_summary

CHECK_BYTES = 1 << 20


class LiveQuarantine:
    """A check of one segment that makes damaged batches unreadable.

    `Log.begin_quarantine` creates it. Call `run` once, in a thread, then pass it to
    `Log.finish_quarantine`. It checks all that the segment held at its creation.

    - `damaged`: the ranges that `run` sealed.
    - `found`: the summary of the segment after `run`.
    - `error`: why `run` failed, or None.
    - `copies`: nothing is appended to the segment any more, and some of its sectors are unreadable,
      or its size has changed.
    - `copy`: the file that is to replace the segment then; None: all of it could be read.
    """

    def __init__(
        self,
        disk: Disk,
        path: PurePath,
        base_offset: int,
        summary: SegmentSummary,
        epochs: LeaderEpochs,
        evidence: Evidence,
        copies: bool,
    ) -> None:
        self._disk = disk
        self._epochs = epochs
        self._evidence = evidence
        self.path = path
        self.before = summary
        self.found = empty_summary(base_offset)
        self.damaged: list[DamagedRange] = []
        self.error: LogError | None = None
        self.copies = copies
        self.copy: PurePath | None = None
        self._end = summary.size

    def run(self) -> None:
        try:
            if self.copies and self._has_bad_sectors():
                self.copy = PurePath(f"{self.path}{TEMPORARY_SUFFIX}")
                self._end = max(self.before.size, self._disk.file_size(self.path))
                copy_readable(self._disk, self.path, self.copy, self._end)
            self._check(self.copy or self.path)
        except OSError as error:
            self.error = read_failure(error, self.path, "check the segment")
        except LogError as error:
            self.error = error

    def discard(self) -> None:
        """Removes the copy, which is not needed; the next start does if the disk rejects that."""
        if self.copy is not None:
            with suppress(OSError):
                self._disk.remove(self.copy)

    def _has_bad_sectors(self) -> bool:
        """Returns whether sectors are unreadable or missing, or there are too many. An earlier read
        error may have passed."""
        if self._disk.file_size(self.path) != self.before.size:
            return True
        file = self._disk.open(self.path)
        reader = BadSectorReader(file)
        try:
            for position in range(0, self.before.size, CHECK_BYTES):
                reader.read_at(min(CHECK_BYTES, self.before.size - position), position)
                if reader.bad_sectors:
                    return True
        finally:
            file.close()
        return False

    def _check(self, path: PurePath) -> None:
        file = self._disk.open(path)
        latest_epoch = NO_EPOCH
        try:
            while self.found.size < self._end:
                frames = walk_frames(
                    file.read_at,
                    self._end,
                    start=self.found.size,
                    expected_offset=self.found.next_offset,
                    verify=True,
                )
                for info in frames:
                    if info.fault is not None or info.header is None:
                        self._fault(file, info.fault or "no header", latest_epoch)
                        break
                    latest_epoch = max(latest_epoch, info.header.leader_epoch)
                    self.found = extend_summary(self.found, info.header, info.size)
        finally:
            file.close()
        if self.found.next_offset != self.before.next_offset:
            raise LogCorruptError(
                self.path,
                self.found.size,
                f"it ends at offset {self.found.next_offset} instead of {self.before.next_offset}",
            )

    def _fault(self, file: DiskFile, reason: str, latest_epoch: int) -> None:
        """Makes the damage behind `found` unreadable, or cuts what is behind the last batch.

        Valid batches that cannot belong there are left to the repair, which puts them in order."""
        position, expected = self.found.size, self.found.next_offset
        fault = Fault(position, expected, self._end, reason)
        if has_misplaced_frame(file.read_at, fault, self.before.next_offset, latest_epoch):
            raise LogCorruptError(self.path, position, reason)
        if expected == self.before.next_offset and self.copy is not None:
            # The file lacks bytes of damaged batches, or has too many.
            rest = file.read_at(min(self._end - position, MAX_FRAME_BYTES), position)
            cut = DamagedRange(expected, expected, position, len(rest), reason)
            self._evidence(self.path, cut, rest)
            file.truncate(position)
            file.sync()
            self._end = position
            return
        damaged = damaged_range(file.read_at, fault, latest_epoch, self.before.next_offset)
        if damaged is not None:
            damaged = first_coverable_part(damaged)
        if damaged is not None and self.copy is not None:
            damaged = self._with_room(file, damaged)
        if damaged is None or not can_quarantine(damaged, at_end=False):
            raise LogCorruptError(self.path, position, reason)
        damaged = with_known_epoch(damaged, latest_epoch, self._epochs)
        quarantine(file, self.path, damaged, latest_epoch, self._evidence)
        self.damaged.append(damaged)

    def _with_room(self, file: DiskFile, damaged: DamagedRange) -> DamagedRange:
        """Returns the range with room for the header of a frame: moves up what is behind it."""
        lacking = FRAME_HEADER_BYTES - damaged.size
        if lacking <= 0:
            return damaged
        start = damaged.position + damaged.size
        for end in range(self._end, start, -CHECK_BYTES):
            position = max(start, end - CHECK_BYTES)
            file.write_at(position + lacking, [file.read_at(end - position, position)])
        file.write_at(start, [bytes(lacking)])
        self._end += lacking
        return damaged._replace(size=FRAME_HEADER_BYTES)
