"""The result of a check, of one partition or of many. Reports can be merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import merge as merge_sorted
from itertools import groupby
from typing import NamedTuple

from tidelog.history.anomalies import Findings
from tidelog.history.client_operations import Nemesis, Outcome, Send
from tidelog.history.evidence import Sighting
from tidelog.history.write_gaps import WriteGap, longest_gap, longest_gap_around
from tidelog.model import NO_OFFSET, TopicPartition

# Nemesis events that a report keeps with their lines.
MAX_NEMESIS_EVENTS = 10_000


class Visibility(NamedTuple):
    """The time from an acknowledgement to the end of the first poll that returned the record."""

    waited_ms: int
    topic: str
    partition: int
    value: int
    offset: int
    acknowledged_line: int
    polled_line: int


class EventGaps(NamedTuple):
    """Gaps around one nemesis event. `overall`: no send to any partition succeeded; `worst`: none
    to one partition succeeded, even if no client tried."""

    line: int
    event: Nemesis
    overall: WriteGap
    worst: WriteGap
    worst_partition: TopicPartition | None


class WriteTiming(NamedTuple):
    longest: WriteGap
    around_events: list[EventGaps]


@dataclass(slots=True)
class Report:
    """The result of a check.

    - `unplaced_sends`: sends whose partition is unknown and that were read in none.
    - `without_offset`: sends that were acknowledged without an offset. It is not judged whether
      they lie where they were acknowledged.
    - `undrained`: partitions with acknowledged sends and no final reads. "unseen" is not judged
      there.
    - `only_in_final_reads`: records that no other poll returned.
    - `success_times_ms`: the times of successful sends, in order, each millisecond once. It grows
      with the duration of a history, not with its operations.
    """

    findings: Findings = field(default_factory=Findings)
    operations: int = 0
    partitions: int = 0
    sends: Counter[Outcome] = field(default_factory=Counter)
    unplaced_sends: int = 0
    without_offset: int = 0
    polls: int = 0
    polled_records: int = 0
    undrained: list[TopicPartition] = field(default_factory=list)
    only_in_final_reads: int = 0
    slowest: Visibility | None = None
    first_send_ms: int | None = None
    last_send_ms: int | None = None
    success_times_ms: dict[TopicPartition, list[int]] = field(default_factory=dict)
    nemesis: list[tuple[int, Nemesis]] = field(default_factory=list)
    nemesis_count: int = 0

    @property
    def anomaly_count(self) -> int:
        """The number of anomalies without an excuse."""
        return self.findings.counts.total()

    @property
    def excused_count(self) -> int:
        return self.findings.excused.total()

    def note_send(self, send: Send) -> None:
        self.sends[send.outcome] += 1
        self.without_offset += send.outcome is Outcome.OK and send.offset == NO_OFFSET
        self._note_sending(send.invoked_ms, send.ended_ms)

    def _note_sending(self, first_ms: int | None, last_ms: int | None) -> None:
        if first_ms is not None and (self.first_send_ms is None or first_ms < self.first_send_ms):
            self.first_send_ms = first_ms
        if last_ms is not None and (self.last_send_ms is None or last_ms > self.last_send_ms):
            self.last_send_ms = last_ms

    def note_sighting(self, send: Send, first: Sighting) -> None:
        """Adds a send that is ok, with its first poll."""
        if first.poll.final:
            self.only_in_final_reads += 1
            return
        waited_ms = max(0, first.poll.time_ms - send.ended_ms)
        if self.slowest is None or waited_ms >= self.slowest.waited_ms:
            lines = (send.ended_line, first.poll.line)
            self._note_visibility(
                Visibility(waited_ms, send.topic, send.partition, send.value, first.offset, *lines)
            )

    def _note_visibility(self, seen: Visibility) -> None:
        if self.slowest is None or _slowness(seen) < _slowness(self.slowest):
            self.slowest = seen

    def merge(self, other: Report) -> None:
        """Adds a report of other partitions, or of other operations of the same partitions.

        In the second case the caller makes sure that each partition is counted once, and that only
        one report has its `success_times_ms`.
        """
        self.findings.merge(other.findings)
        self.operations += other.operations
        self.partitions += other.partitions
        self.sends.update(other.sends)
        self.unplaced_sends += other.unplaced_sends
        self.without_offset += other.without_offset
        self.polls += other.polls
        self.polled_records += other.polled_records
        self.undrained = sorted(self.undrained + other.undrained)
        self.only_in_final_reads += other.only_in_final_reads
        if other.slowest is not None:
            self._note_visibility(other.slowest)
        self._note_sending(other.first_send_ms, other.last_send_ms)
        self.success_times_ms |= other.success_times_ms
        self.nemesis = sorted(self.nemesis + other.nemesis)[:MAX_NEMESIS_EVENTS]
        self.nemesis_count += other.nemesis_count

    def write_timing(self) -> WriteTiming:
        return WriteTiming(self.longest_write_gap(), self.gaps_around_events())

    def longest_write_gap(self) -> WriteGap:
        return longest_gap(self._all_success_times())

    def gaps_around_events(self) -> list[EventGaps]:
        everywhere = self._all_success_times()
        following = [event.time_ms for _, event in self.nemesis[1:]]
        gaps = []
        for (line, event), next_ms in zip(self.nemesis, [*following, None], strict=False):
            worst, where = WriteGap(0, 0), None
            for partition, times in sorted(self.success_times_ms.items()):
                gap = longest_gap_around(times, event.time_ms, next_ms)
                if gap.length_ms > worst.length_ms:
                    worst, where = gap, partition
            overall = longest_gap_around(everywhere, event.time_ms, next_ms)
            gaps.append(EventGaps(line, event, overall, worst, where))
        return gaps

    def _all_success_times(self) -> list[int]:
        """Returns the times of all successes, and of the first invocation and the last event of
        any send."""
        edges = [time for time in (self.first_send_ms, self.last_send_ms) if time is not None]
        times: Iterable[int] = merge_sorted(edges, *self.success_times_ms.values())
        return [time for time, _ in groupby(times)]


def _slowness(seen: Visibility) -> tuple[int, str, int, int]:
    """Sorts the slowest first; among equals the earliest acknowledgement."""
    return -seen.waited_ms, seen.topic, seen.partition, seen.acknowledged_line
