"""The verdict on one partition. It needs nothing of any other, so that a large history can
be split by partition and checked anywhere, and the reports merged."""

from __future__ import annotations

from tidelog.history.acknowledged import find_sends_out_of_order, find_two_leaders, find_unread
from tidelog.history.anomalies import PartitionFindings
from tidelog.history.evidence import PollSource
from tidelog.history.high_watermarks import HighWatermarks
from tidelog.history.loss_marks import LossMarks
from tidelog.history.operations import (
    HighWatermarkEnded,
    HighWatermarkInvoked,
    LossMark,
    Outcome,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    Send,
)
from tidelog.history.passed_over import PassedOver
from tidelog.history.poll_order import PollOrder
from tidelog.history.record_order import RecordOrder
from tidelog.history.replica_digests import ReplicaDigests
from tidelog.history.report import Report, Visibility
from tidelog.model import TopicPartition


class PartitionCheck:
    """Operations are added in the order of their lines, whole sends in any order (their
    own lines say theirs); then `finish`, once."""

    def __init__(self, topic: str, partition: int) -> None:
        self._partition = TopicPartition(topic, partition)
        self._found = PartitionFindings(topic, partition)
        self._marks = LossMarks()
        self._polls = PollOrder(self._found)
        self._order = RecordOrder(self._found, self._marks)
        self._high_watermarks = HighWatermarks(self._found, self._marks)
        self._digests = ReplicaDigests()
        self._sends: dict[int, Send] = {}
        self._drain_line: int | None = None
        self._poll_count = 0
        self._record_count = 0

    def has_polled(self, value: int) -> bool:
        return value in self._order.first

    def add_send(self, send: Send) -> None:
        self._sends[send.value] = send

    def add_poll_invoked(self, line: int, poll: PollInvoked) -> None:
        if poll.final and self._drain_line is None:
            self._drain_line = line

    def add_poll(self, line: int, poll: PollEnded) -> None:
        if poll.final and self._drain_line is None:
            self._drain_line = line
        self._poll_count += 1
        self._record_count += len(poll.offsets)
        source = PollSource(line, poll.time_ms, poll.client, poll.final)
        self._polls.add(poll, source)
        self._order.add_poll(poll, source)
        self._high_watermarks.add_poll(poll, line)

    def add_hw_invoked(self, line: int, reading: HighWatermarkInvoked) -> None:
        self._high_watermarks.add_invoked(reading, line)

    def add_hw(self, line: int, reading: HighWatermarkEnded) -> None:
        """Raises `HistoryError` for one that was not invoked."""
        self._high_watermarks.add_ended(reading, line)

    def add_mark(self, mark: LossMark) -> None:
        self._marks.add(mark)

    def add_digest(self, line: int, digest: ReplicaDigest) -> None:
        self._digests.add(line, digest)

    def finish(self) -> Report:
        sends = self._sends.values()
        self._order.judge(self._sends)
        passed = PassedOver(self._polls.jumps)
        if passed:
            passed.judge(self._order.known_in(passed, sends), self._marks, self._found)
        find_unread(
            sends,
            self._order.first,
            self._polls.read_past(self._marks),
            self._drain_line,
            self._marks,
            self._found,
        )
        find_sends_out_of_order(sends, self._marks, self._found)
        find_two_leaders(sends, self._found)
        self._high_watermarks.judge()
        self._digests.judge(self._found)
        report = Report(findings=self._found.findings, partitions=1)
        report.polls, report.polled_records = self._poll_count, self._record_count
        self._note_sends(report)
        return report

    def _note_sends(self, report: Report) -> None:
        """Counts, and what is reported and not judged."""
        times: set[int] = set()
        for send in self._sends.values():
            report.note_send(send)
            if send.outcome is not Outcome.OK:
                continue
            times.add(send.ended_ms)
            sighting = self._order.first.get(send.value)
            if sighting is None:
                continue
            if sighting.poll.final:
                report.only_in_final_reads += 1
                continue
            waited_ms = max(0, sighting.poll.time_ms - send.ended_ms)
            if report.slowest is None or waited_ms > report.slowest.waited_ms:
                report.slowest = Visibility(
                    waited_ms,
                    *self._partition,
                    send.value,
                    sighting.offset,
                    send.ended_line,
                    sighting.poll.line,
                )
        if times:
            report.success_times_ms[self._partition] = sorted(times)
            if self._drain_line is None:
                report.undrained.append(self._partition)
