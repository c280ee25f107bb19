"""Makes the damaged batches of one segment unreadable while its log is in use: the only copy of a
partition goes on being read and written ("Damaged batches" in ARCHITECTURE.md)."""

from __future__ import annotations

from pathlib import PurePath

from tidelog.log_format import walk_frames
from tidelog.model import NO_EPOCH
from tidelog_broker.log.damage_seal import (
    DamagedRange,
    Evidence,
    Fault,
    can_seal,
    damaged_range,
    first_piece,
    seal,
)
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.errors import LogCorruptError, LogError, LogStorageError
from tidelog_broker.log.indexes import SegmentSummary, summarise
from tidelog_broker.log.segment import empty_summary


class LiveSeal:
    """Made by `Log.begin_seal`; `run` it once, in a thread, then hand it to `Log.finish_seal`.

    Checks all that the segment held when this was made. Then `damaged` has what was sealed,
    `found` the segment as it is now, or `error` is set."""

    def __init__(
        self,
        disk: Disk,
        path: PurePath,
        base_offset: int,
        summary: SegmentSummary,
        evidence: Evidence,
    ) -> None:
        self._disk = disk
        self._base_offset = base_offset
        self._evidence = evidence
        self.path = path
        self.before = summary
        self.found = empty_summary(base_offset)
        self.damaged: list[DamagedRange] = []
        self.error: LogError | None = None

    def run(self) -> None:
        try:
            self._check()
        except OSError as error:
            self.error = LogStorageError.of(error, self.path, "check the segment")
        except LogError as error:
            self.error = error

    def _check(self) -> None:
        file = self._disk.open(self.path)
        latest_epoch = NO_EPOCH
        try:
            while self.found.size < self.before.size:
                found = self.found
                frames = walk_frames(
                    file.read_at,
                    self.before.size,
                    start=found.size,
                    expected_offset=found.next_offset,
                    verify=True,
                )
                for info in frames:
                    if info.fault is not None or info.header is None:
                        fault = Fault(
                            info.position,
                            self.found.next_offset,
                            self.before.size,
                            info.fault or "no header",
                        )
                        damaged = damaged_range(
                            file.read_at, fault, latest_epoch, self.before.next_offset
                        )
                        if damaged is not None:
                            damaged = first_piece(damaged)
                        if damaged is None or not can_seal(damaged, at_end=False):
                            raise LogCorruptError(self.path, info.position, fault.reason)
                        before_ms = self.found.max_timestamp_ms
                        seal(file, self.path, damaged, latest_epoch, self._evidence, before_ms)
                        self.damaged.append(damaged)
                        break
                    latest_epoch = max(latest_epoch, info.header.leader_epoch)
                    self.found = summarise(self.found, info.header, info.size)
        finally:
            file.close()
        if self.found.next_offset != self.before.next_offset:
            raise LogCorruptError(
                self.path,
                self.found.size,
                f"it ends at offset {self.found.next_offset} instead of {self.before.next_offset}",
            )
