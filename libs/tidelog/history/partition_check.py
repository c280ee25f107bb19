"""The verdict on one partition. It depends on no other partition, so that a large history can be
split by partition and checked anywhere, and the reports merged."""

from __future__ import annotations

from tidelog.history.acknowledged import Leaders, SendOrder, find_unread
from tidelog.history.anomalies import PartitionFindings
from tidelog.history.client_operations import (
    HighWatermarkEnded,
    HighWatermarkInvoked,
    LossMark,
    Outcome,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    Send,
)
from tidelog.history.loss_marks import LossMarks
from tidelog.history.reader_check import ReaderCheck
from tidelog.history.record_order import RecordOrder
from tidelog.history.report import Report
from tidelog.history.skipped_offsets import Jumps
from tidelog.model import TopicPartition


class PartitionCheck:
    """Checks one partition.

    Operations are added in the order of their lines; complete sends in any order, since they name
    their lines. Call `finish` once at the end.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._partition = TopicPartition(topic, partition)
        self._found = PartitionFindings(topic, partition)
        self._marks = LossMarks()
        self._readers = ReaderCheck(self._found, self._marks)
        self._order = RecordOrder(self._found, self._marks)
        self._sends: dict[int, Send] = {}

    def has_polled(self, value: int) -> bool:
        return value in self._order.first

    def add_send(self, send: Send) -> None:
        self._sends[send.value] = send

    def add_poll_invoked(self, line: int, poll: PollInvoked) -> None:
        self._readers.add_poll_invoked(line, poll)

    def add_poll(self, line: int, poll: PollEnded) -> None:
        self._order.add_poll(poll, self._readers.add_poll(line, poll))

    def add_hw_invoked(self, line: int, reading: HighWatermarkInvoked) -> None:
        self._readers.add_hw_invoked(line, reading)

    def add_hw(self, line: int, reading: HighWatermarkEnded) -> None:
        """Raises `HistoryError` if the reading was not invoked."""
        self._readers.add_hw(line, reading)

    def add_mark(self, mark: LossMark) -> None:
        self._marks.add(mark)

    def add_digest(self, line: int, digest: ReplicaDigest) -> None:
        self._readers.add_digest(line, digest)

    def finish(self) -> Report:
        sends = self._sends.values()
        polls, polled = self._readers.polls, self._order.first
        self._order.check_offsets(self._sends)
        self._order.check_values(self._sends)
        passed = Jumps(polls.jumps)
        if passed:
            passed.check(self._order.known_in(passed.holds, sends), self._marks, self._found)
        find_unread(
            (send for send in sends if send.value not in polled),
            polls.read_past(self._marks),
            self._readers.drain_line,
            self._marks,
            self._found,
        )
        self._check_acknowledgements()
        self._readers.finish()
        report = Report(findings=self._found.findings, partitions=1)
        report.polls, report.polled_records = self._readers.poll_count, self._readers.record_count
        self._note_sends(report)
        return report

    def _check_acknowledgements(self) -> None:
        order, leaders = SendOrder(self._marks, self._found), Leaders()
        for send in sorted(self._sends.values(), key=lambda send: send.invoked_line):
            order.add(send)
            leaders.add(send)
        leaders.check(self._found)

    def _note_sends(self, report: Report) -> None:
        """Adds the counts and timings of sends to the report."""
        times: set[int] = set()
        for send in self._sends.values():
            report.note_send(send)
            if send.outcome is not Outcome.OK:
                continue
            times.add(send.ended_ms)
            sighting = self._order.first.get(send.value)
            if sighting is not None:
                report.note_sighting(send, sighting)
        if times:
            report.success_times_ms[self._partition] = sorted(times)
            if self._readers.drain_line is None:
                report.undrained.append(self._partition)
