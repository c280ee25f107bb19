"""Offsets that a client did not receive although it received a higher one.

An offset may hold no record: a producer fence lies where a producer's name was taken over, and
clients do not receive fences. So a jump is a skip only if a record is known at an offset that it
passed over, and that record was in the log that the client read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.history.anomalies import Anomaly, PartitionFindings, Reference
from tidelog.history.loss_marks import LossMarks
from tidelog.history.read_spans import lies_within, merged


class Jump(NamedTuple):
    """A jump over the offsets `first` up to `end` (excluded).

    - `end`: the offset that the client received next, in `leader_epoch`.
    - `anomaly`: the class of the finding if a record was skipped.
    """

    anomaly: Anomaly
    first: int
    end: int
    leader_epoch: int
    summary: str
    shown_by: tuple[Reference, ...]


class KnownRecord(NamedTuple):
    """A record that was acknowledged at this offset, or that some client read there."""

    offset: int
    leader_epoch: int
    shown_by: Reference


class SkippedRecords:
    """Finds the jumps that skipped a record, and keeps those that still may have.

    Takes jumps and records in the order of their offsets; a jump's offset is its `first`. At the
    same offset jumps come before records.
    """

    def __init__(self, marks: LossMarks, findings: PartitionFindings) -> None:
        self._marks = marks
        self._findings = findings
        self._open: list[Jump] = []

    def jumped(self, jump: Jump) -> None:
        self._open.append(jump)

    def holds(self, offset: int) -> bool:
        """Whether an open jump may have skipped a record at `offset`. Offsets must ascend."""
        return any(offset < jump.end for jump in self._open)

    def known(self, record: KnownRecord) -> None:
        """Adds a record; those of one offset come in their own order.

        A jump skipped the first record that was in the log from which the client received its next
        record.
        """
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
        # A range that became unreadable is passed over as a whole, whatever follows.
        if marks.ends_by(record.leader_epoch, record.offset, jump.end):
            return False
        return marks.are_of_one_log(record.offset, record.leader_epoch, jump.leader_epoch)

    def _add(self, jump: Jump, skipped: KnownRecord) -> None:
        self._findings.add(
            jump.anomaly,
            f"{jump.summary}, and there is a record at {skipped.offset}",
            (*jump.shown_by, skipped.shown_by),
        )


class Jumps:
    """The jumps of one partition. Records must be known for the offsets within their spans, which
    are ordered and disjoint."""

    def __init__(self, jumps: Sequence[Jump]) -> None:
        self._jumps = sorted(jumps, key=lambda jump: jump.first)
        self._spans = merged([(jump.first, jump.end - 1) for jump in jumps])

    def __bool__(self) -> bool:
        return bool(self._jumps)

    def holds(self, offset: int) -> bool:
        return lies_within(offset, self._spans)

    def check(
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
