"""Checks what acknowledgements of one partition promise: the records are read, in order, and only
one broker leads in a leader epoch."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.history.anomalies import Anomaly, PartitionFindings
from tidelog.history.client_operations import NO_BROKER, Outcome, Send
from tidelog.history.evidence import send_reference
from tidelog.history.loss_marks import LossMarks
from tidelog.history.read_spans import ReadSpans
from tidelog.model import NO_EPOCH, NO_OFFSET


def find_unread(
    never_polled: Iterable[Send],
    read_past: ReadSpans,
    drain_line: int | None,
    marks: LossMarks,
    findings: PartitionFindings,
) -> None:
    """Finds lost and unseen writes. `drain_line`: the line where the final reads begin."""
    for send in never_polled:
        if send.outcome is not Outcome.OK:
            continue
        if send.offset != NO_OFFSET and read_past.holds(send.offset, send.leader_epoch):
            anomaly, what = Anomaly.LOST_WRITE, "others read past it, no client read it"
        elif drain_line is not None and send.ended_line < drain_line:
            anomaly, what = Anomaly.UNSEEN, "the final reads do not show it"
        else:
            continue
        findings.add(
            anomaly,
            f"value {send.value} acknowledged at offset {_offset_text(send)}: {what}",
            (send_reference(send),),
            marks.reason(send.leader_epoch, send.offset),
        )


def _offset_text(send: Send) -> str:
    return "unknown" if send.offset == NO_OFFSET else str(send.offset)


class SendOrder:
    """Takes sends in the order in which clients handed them over, and keeps each client's last."""

    def __init__(self, marks: LossMarks, findings: PartitionFindings) -> None:
        self._marks = marks
        self._findings = findings
        self._last: dict[str, Send] = {}

    def add(self, send: Send) -> None:
        if send.outcome is not Outcome.OK or send.offset == NO_OFFSET:
            return
        before = self._last.get(send.client)
        self._last[send.client] = send
        if before is None or before.offset <= send.offset:
            return
        self._findings.add(
            Anomaly.NON_MONOTONIC_SEND,
            f"{send.client} was acknowledged offset {send.offset} after {before.offset}",
            (send_reference(before), send_reference(send)),
            self._marks.reason(before.leader_epoch, before.offset),
        )


class Leaders:
    """Takes sends in any order, and keeps the first one that each broker acknowledged in each
    leader epoch."""

    def __init__(self) -> None:
        self._epochs: dict[int, dict[int, Send]] = {}

    def add(self, send: Send) -> None:
        if (
            send.outcome is not Outcome.OK
            or send.leader_epoch == NO_EPOCH
            or send.broker_id == NO_BROKER
        ):
            return
        by_broker = self._epochs.setdefault(send.leader_epoch, {})
        first = by_broker.get(send.broker_id)
        if first is None or send.ended_line < first.ended_line:
            by_broker[send.broker_id] = send

    def check(self, findings: PartitionFindings) -> None:
        for epoch, by_broker in sorted(self._epochs.items()):
            if len(by_broker) > 1:
                findings.add(
                    Anomaly.TWO_LEADERS,
                    f"brokers {', '.join(map(str, sorted(by_broker)))} acknowledged writes "
                    f"in leader epoch {epoch}",
                    [send_reference(send) for send in by_broker.values()],
                )
