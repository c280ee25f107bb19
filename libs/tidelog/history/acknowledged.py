"""What acknowledgements of one partition promise: that the records are read, in order,
and that one broker led."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.history.anomalies import Anomaly, PartitionFindings
from tidelog.history.evidence import Sighting, send_reference
from tidelog.history.loss_marks import LossMarks
from tidelog.history.operations import NO_BROKER, Outcome, Send
from tidelog.history.read_past import ReadPast
from tidelog.model import NO_EPOCH, NO_OFFSET


def find_unread(
    sends: Iterable[Send],
    polled: dict[int, Sighting],
    read_past: ReadPast,
    drain_line: int | None,
    marks: LossMarks,
    findings: PartitionFindings,
) -> None:
    """Lost writes and unseen ones. `drain_line`: where the final reads begin."""
    for send in sends:
        if send.outcome is not Outcome.OK or send.value in polled:
            continue
        if send.offset != NO_OFFSET and read_past.holds(send.offset, send.leader_epoch):
            anomaly, what = Anomaly.LOST_WRITE, "others read past it, nobody read it"
        elif drain_line is not None and send.ended_line < drain_line:
            anomaly, what = Anomaly.UNSEEN, "the final reads do not show it"
        else:
            continue
        findings.add(
            anomaly,
            lambda send=send, what=what: (  # type: ignore[misc]
                f"value {send.value} acknowledged at offset {_offset_text(send)}: {what}",
                (send_reference(send),),
            ),
            marks.reason(send.leader_epoch, send.offset),
        )


def _offset_text(send: Send) -> str:
    return "unknown" if send.offset == NO_OFFSET else str(send.offset)


def find_sends_out_of_order(
    sends: Iterable[Send], marks: LossMarks, findings: PartitionFindings
) -> None:
    last: dict[str, Send] = {}
    for send in sorted(sends, key=lambda send: send.invoked_line):
        if send.outcome is not Outcome.OK or send.offset == NO_OFFSET:
            continue
        before = last.get(send.client)
        last[send.client] = send
        if before is None or before.offset <= send.offset:
            continue
        findings.add(
            Anomaly.NON_MONOTONIC_SEND,
            lambda before=before, send=send: (  # type: ignore[misc]
                f"{send.client} was acknowledged offset {send.offset} after {before.offset}",
                (send_reference(before), send_reference(send)),
            ),
            marks.reason(before.leader_epoch, before.offset),
        )


def find_two_leaders(sends: Iterable[Send], findings: PartitionFindings) -> None:
    leaders: dict[int, dict[int, Send]] = {}
    for send in sends:
        if (
            send.outcome is Outcome.OK
            and send.leader_epoch != NO_EPOCH
            and send.broker_id != NO_BROKER
        ):
            leaders.setdefault(send.leader_epoch, {}).setdefault(send.broker_id, send)
    for epoch, by_broker in sorted(leaders.items()):
        if len(by_broker) > 1:
            findings.add(
                Anomaly.TWO_LEADERS,
                lambda epoch=epoch, by_broker=by_broker: (  # type: ignore[misc]
                    f"brokers {', '.join(map(str, sorted(by_broker)))} acknowledged writes "
                    f"in leader epoch {epoch}",
                    [send_reference(send) for send in by_broker.values()],
                ),
            )
