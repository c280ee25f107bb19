"""Offsets that a client was not given, though it was given a higher one.

An offset may hold no record: where a producer's name was taken over lies a fence, which no
client is given. So a jump is a skip where a record is known at an offset that it passed over,
and was in the log that the client read.
"""

from __future__ import annotations

from bisect import bisect_left
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


class PassedOver:
    """Of whose offsets records have to be known: of those within `spans`, in order and
    disjoint."""

    def __init__(self, jumps: Sequence[Jump]) -> None:
        self._jumps = jumps
        self._spans = merged([(jump.first, jump.end - 1) for jump in jumps])

    def __bool__(self) -> bool:
        return bool(self._jumps)

    def holds(self, offset: int) -> bool:
        return lies_within(offset, self._spans)

    def judge(
        self, known: Iterable[KnownRecord], marks: LossMarks, findings: PartitionFindings
    ) -> None:
        records = sorted(known)
        for jump in self._jumps:
            skipped = _skipped(jump, records, marks)
            if skipped is not None:
                findings.add(
                    jump.anomaly,
                    lambda jump=jump, skipped=skipped: (  # type: ignore[misc]
                        f"{jump.summary}, and there is a record at {skipped.offset}",
                        (*jump.shown_by, skipped.shown_by),
                    ),
                )


def _skipped(jump: Jump, records: Sequence[KnownRecord], marks: LossMarks) -> KnownRecord | None:
    """The first that was in the log from which the client was given what it was given next."""
    index = bisect_left(records, jump.first, key=lambda record: record.offset)
    while index < len(records) and records[index].offset < jump.end:
        record = records[index]
        if marks.are_of_one_log(record.offset, record.leader_epoch, jump.leader_epoch):
            return record
        index += 1
    return None
