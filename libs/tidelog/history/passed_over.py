"""Offsets that a client was not given, though it was given a higher one.

An offset may hold no record: where a producer's name was taken over lies a fence, which no
client is given. So a jump is a skip where a record is known at an offset that it passed over,
and was in the log that the client read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.history.anomalies import Anomaly, PartitionFindings, Reference
from tidelog.history.loss_marks import LossMarks
from tidelog.history.read_past import lies_within, merged


class Jump(NamedTuple):
    """Passed over: `first` up to `end` (excluded), which was given in `leader_epoch`.
    `anomaly`: what it is if it skipped a record."""

    anomaly: Anomaly
    first: int
    end: int
    leader_epoch: int
    summary: str
    shown_by: tuple[Reference, ...]


class KnownRecord(NamedTuple):
    """Acknowledged at this offset, or read there by anybody."""

    offset: int
    leader_epoch: int
    shown_by: Reference


class SkippedRecords:
    """Takes jumps and records in the order of their offsets (a jump's is its `first`; of one
    offset the jumps before the records), and keeps the jumps that may yet have skipped one."""

    def __init__(self, marks: LossMarks, findings: PartitionFindings) -> None:
        self._marks = marks
        self._findings = findings
        self._open: list[Jump] = []

    def jumped(self, jump: Jump) -> None:
        self._open.append(jump)

    def holds(self, offset: int) -> bool:
        """Whether some jump may have skipped a record there; of offsets in their order."""
        return any(offset < jump.end for jump in self._open)

    def known(self, record: KnownRecord) -> None:
        """Of one offset in their own order. A jump skipped the first that was in the log from
        which the client was given what it was given next."""
        if not self._open:
            return
        still_open = []
        for jump in self._open:
            if jump.end <= record.offset:
                continue
            if self._is_skipped(jump, record):
                self._add(jump, record)
            else:
                still_open.append(jump)
        self._open = still_open

    def _is_skipped(self, jump: Jump, record: KnownRecord) -> bool:
        marks = self._marks
        # What became unreadable is passed over as a whole, whatever comes next.
        if marks.ends_by(record.leader_epoch, record.offset, jump.end):
            return False
        return marks.are_of_one_log(record.offset, record.leader_epoch, jump.leader_epoch)

    def _add(self, jump: Jump, skipped: KnownRecord) -> None:
        self._findings.add(
            jump.anomaly,
            f"{jump.summary}, and there is a record at {skipped.offset}",
            (*jump.shown_by, skipped.shown_by),
        )


class PassedOver:
    """Of whose offsets records have to be known: of those within `spans`, in order and
    disjoint."""

    def __init__(self, jumps: Sequence[Jump]) -> None:
        self._jumps = sorted(jumps, key=lambda jump: jump.first)
        self._spans = merged([(jump.first, jump.end - 1) for jump in jumps])

    def __bool__(self) -> bool:
        return bool(self._jumps)

    def holds(self, offset: int) -> bool:
        return lies_within(offset, self._spans)

    def judge(
        self, known: Iterable[KnownRecord], marks: LossMarks, findings: PartitionFindings
    ) -> None:
        skipped = SkippedRecords(marks, findings)
        jumps = iter(self._jumps)
        jump = next(jumps, None)
        for record in sorted(known):
            while jump is not None and jump.first <= record.offset:
                skipped.jumped(jump)
                jump = next(jumps, None)
            skipped.known(record)
