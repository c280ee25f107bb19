"""Finds regressions of one partition's committed end, as clients saw it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from tidelog.history.anomalies import Anomaly, PartitionFindings, Reference
from tidelog.history.client_operations import (
    HighWatermarkEnded,
    HighWatermarkInvoked,
    HistoryError,
    Outcome,
    PollEnded,
)
from tidelog.history.loss_marks import LossMarks
from tidelog.model import NO_EPOCH, NO_OFFSET


class _Seen(NamedTuple):
    line: int
    time_ms: int
    client: str
    high_watermark: int
    leader_epoch: int

    def reference(self) -> Reference:
        epoch = "" if self.leader_epoch == NO_EPOCH else f" in leader epoch {self.leader_epoch}"
        return Reference(
            self.line,
            self.time_ms,
            f"{self.client} saw high watermark {self.high_watermark}{epoch}",
        )


class _Epoch:
    """What clients saw in one leader epoch: the lowest high watermark, and the highest one before
    each open reading."""

    __slots__ = ("highest", "lowest")

    def __init__(self, seen: _Seen) -> None:
        self.lowest = seen
        self.highest = [seen]

    def add(self, seen: _Seen, open_lines: Collection[int]) -> None:
        if seen.high_watermark < self.lowest.high_watermark:
            self.lowest = seen
        if seen.high_watermark > self.highest[-1].high_watermark:
            self.highest = [
                before
                for before, after in pairwise([*self.highest, seen])
                if any(before.line < line < after.line for line in open_lines)
            ]
            self.highest.append(seen)

    def highest_before(self, line: int) -> _Seen | None:
        """Returns the highest one before `line`, which is the line of an open reading."""
        count = bisect_left(self.highest, line, key=lambda seen: seen.line)
        return self.highest[count - 1] if count else None


class HighWatermarks:
    """Collects high watermarks, and reports regressions in `check`.

    Verdicts wait until `check`, because a loss mark may be written after what it excuses. Memory
    grows with clients, leader epochs and regressions.
    """

    def __init__(self, findings: PartitionFindings, marks: LossMarks) -> None:
        self._findings = findings
        self._marks = marks
        # By client and by whether it was a poll: a poll may return what was fetched before the
        # client's last reading.
        self._last: dict[tuple[str, bool], _Seen] = {}
        self._asked: dict[str, int] = {}
        self._epochs: dict[int, _Epoch] = {}
        # Pairs of a higher and a later, lower one.
        self._regressions: list[tuple[_Seen, _Seen]] = []

    def add_poll(self, poll: PollEnded, line: int) -> None:
        if poll.high_watermark != NO_OFFSET:
            self._add(
                _Seen(
                    line,
                    poll.time_ms,
                    poll.client,
                    poll.high_watermark,
                    poll.high_watermark_epoch,
                ),
                asked_line=None,
            )

    def add_invoked(self, reading: HighWatermarkInvoked, line: int) -> None:
        self._asked[reading.client] = line

    def add_ended(self, reading: HighWatermarkEnded, line: int) -> None:
        asked_line = self._asked.pop(reading.client, None)
        if asked_line is None:
            raise HistoryError(
                f"line {line}: a reading of the high watermark of {reading.topic}/"
                f"{reading.partition} by {reading.client} ends that was not invoked; write "
                f"its invocation first"
            )
        if reading.outcome is Outcome.OK and reading.high_watermark != NO_OFFSET:
            self._add(
                _Seen(
                    line,
                    reading.time_ms,
                    reading.client,
                    reading.high_watermark,
                    reading.leader_epoch,
                ),
                asked_line,
            )

    def _add(self, seen: _Seen, asked_line: int | None) -> None:
        key = (seen.client, asked_line is None)
        before = self._last.get(key)
        self._last[key] = seen
        epoch = self._epochs.get(seen.leader_epoch)
        if before is None or before.high_watermark <= seen.high_watermark:
            before = None
            if asked_line is not None and epoch is not None and seen.leader_epoch != NO_EPOCH:
                before = epoch.highest_before(asked_line)
        if before is not None and before.high_watermark > seen.high_watermark:
            self._regressions.append((before, seen))
        if epoch is None:
            self._epochs[seen.leader_epoch] = _Epoch(seen)
        else:
            epoch.add(seen, self._asked.values())

    def check(self) -> None:
        reported = {lower.line for _, lower in self._regressions}
        for higher, lower in self._regressions:
            self._report(higher, lower)
        highest: _Seen | None = None
        for number in sorted(self._epochs):
            if number == NO_EPOCH:
                continue
            lowest, newest = self._epochs[number].lowest, self._epochs[number].highest[-1]
            if (
                highest is not None
                and lowest.high_watermark < highest.high_watermark
                and lowest.line not in reported
            ):
                self._report(highest, lowest)
            if highest is None or newest.high_watermark > highest.high_watermark:
                highest = newest

    def _report(self, higher: _Seen, lower: _Seen) -> None:
        # The last record below the higher end must be one that was given up.
        excuse = self._marks.reason(higher.leader_epoch, higher.high_watermark - 1)
        self._findings.add(
            Anomaly.HW_REGRESSION,
            f"high watermark {lower.high_watermark} after {higher.high_watermark}",
            (higher.reference(), lower.reference()),
            excuse,
        )
