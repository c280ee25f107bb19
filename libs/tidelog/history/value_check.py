"""Checks by value: each send was read, once, and no other value was read.

A check depends on no other value, so that a large history can be split by value and checked
anywhere. The halves of a send are joined here; a check by partition needs them joined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.history.anomalies import PartitionFindings
from tidelog.history.client_operations import NO_PARTITION, Outcome, Send, SendEnded, SendInvoked
from tidelog.history.evidence import PollSource
from tidelog.history.loss_marks import LossMarks
from tidelog.history.record_order import RecordOrder
from tidelog.history.report import Report
from tidelog.history.send_pairing import SendPairing
from tidelog.model import TopicPartition


class CheckedSend(NamedTuple):
    send: Send
    is_polled: bool


class _Partition:
    def __init__(self, name: TopicPartition, marks: LossMarks) -> None:
        self.found = PartitionFindings(*name)
        self.order = RecordOrder(self.found, marks)
        self.sends: dict[int, Send] = {}


class ValueCheck:
    """Takes all operations of some values, those of each value in the order of lines. Call `finish`
    once at the end. `marks` returns all loss marks of a partition, wherever they lie in the
    history."""

    def __init__(self, marks: Callable[[TopicPartition], LossMarks]) -> None:
        self._marks = marks
        self._pairing = SendPairing()
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._sends: list[Send] = []

    def invoked(self, line: int, send: SendInvoked) -> None:
        """Raises `HistoryError`, as `ended` does."""
        self._pairing.invoked(line, send)

    def ended(self, line: int, end: SendEnded) -> None:
        self._sends.append(self._pairing.ended(line, end))

    def polled(
        self, name: TopicPartition, record: tuple[int, int, int], source: PollSource
    ) -> None:
        """`record`: offset, value and leader epoch."""
        self._partition(name).order.add_records((record,), source)

    def finish(self) -> tuple[list[CheckedSend], Report]:
        """The report covers only the checks by value; it counts no partitions."""
        report = Report()
        sends = [self._placed(send) for send in [*self._sends, *self._pairing.never_ended()]]
        judged = [self._note(send, report) for send in sends]
        for name in sorted(self._partitions):
            partition = self._partitions[name]
            partition.order.check_values(partition.sends)
            report.findings.merge(partition.found.findings)
        return judged, report

    def _partition(self, name: TopicPartition) -> _Partition:
        partition = self._partitions.get(name)
        if partition is None:
            partition = self._partitions[name] = _Partition(name, self._marks(name))
        return partition

    def _placed(self, send: Send) -> Send:
        """Returns the send with its partition. If it names none, this is the lowest partition of
        its topic where it was read."""
        if send.partition != NO_PARTITION:
            return send
        for name in sorted(self._partitions):
            if name.topic == send.topic and send.value in self._partitions[name].order.first:
                return send._replace(partition=name.partition)
        return send

    def _note(self, send: Send, report: Report) -> CheckedSend:
        report.note_send(send)
        if send.partition == NO_PARTITION:
            report.unplaced_sends += 1
            return CheckedSend(send, is_polled=False)
        name = TopicPartition(send.topic, send.partition)
        partition = self._partitions.get(name)
        if partition is None:
            return CheckedSend(send, is_polled=False)
        partition.sends[send.value] = send
        first = partition.order.first.get(send.value)
        if first is not None and send.outcome is Outcome.OK:
            report.note_sighting(send, first)
        return CheckedSend(send, is_polled=first is not None)
