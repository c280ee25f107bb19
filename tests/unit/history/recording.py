"""Compact notation for histories in tests: one topic, and each operation takes 10 ms."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.history import (
    NO_BROKER,
    Anomaly,
    HighWatermarkEnded,
    HighWatermarkInvoked,
    LossMark,
    Nemesis,
    Operation,
    Outcome,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    Report,
    SendEnded,
    SendInvoked,
    check_history,
)
from tidelog.history.client_operations import OPEN_END
from tidelog.model import NO_EPOCH, NO_OFFSET

TOPIC = "sea"
STEP_MS = 10


class Recording:
    """Operations are at lines 1, 2, … By default in partition 0, leader epoch 1, on broker 1."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    @property
    def now_ms(self) -> int:
        return STEP_MS * len(self.operations)

    def invoke(self, value: int, client: str = "p1", partition: int = 0) -> None:
        self.operations.append(SendInvoked(self.now_ms, client, TOPIC, partition, value))

    def end(
        self,
        value: int,
        outcome: Outcome,
        offset: int = NO_OFFSET,
        client: str = "p1",
        partition: int = 0,
        epoch: int = NO_EPOCH,
        broker: int = NO_BROKER,
    ) -> None:
        self.operations.append(
            SendEnded(self.now_ms, client, TOPIC, partition, value, outcome, offset, epoch, broker)
        )

    def sent(
        self,
        value: int,
        offset: int,
        client: str = "p1",
        partition: int = 0,
        epoch: int = 1,
        broker: int = 1,
    ) -> None:
        self.invoke(value, client, partition)
        self.end(value, Outcome.OK, offset, client, partition, epoch, broker)

    def polled(
        self,
        records: Sequence[tuple[int, int]] = (),
        client: str = "c1",
        partition: int = 0,
        epoch: int = 1,
        outcome: Outcome = Outcome.OK,
        repositioned: bool = False,
        high_watermark: int = NO_OFFSET,
        final: bool = False,
        epochs: Sequence[int] = (),
    ) -> None:
        """`records`: offset and value of each. `epochs`: their leader epochs, where they differ."""
        self.operations.append(
            PollEnded(
                self.now_ms,
                client,
                TOPIC,
                partition,
                outcome,
                [offset for offset, _ in records],
                [value for _, value in records],
                epochs or [epoch] * len(records),
                repositioned,
                high_watermark,
                NO_EPOCH if high_watermark == NO_OFFSET else epoch,
                final,
            )
        )

    def drained(self, records: Sequence[tuple[int, int]], partition: int = 0) -> None:
        self.operations.append(PollInvoked(self.now_ms, "drain", TOPIC, partition, final=True))
        self.polled(records, client="drain", partition=partition, final=True)

    def requests_high_watermark(self, client: str = "c1") -> None:
        self.operations.append(HighWatermarkInvoked(self.now_ms, client, TOPIC, 0))

    def sent_high_watermark(self, high_watermark: int, client: str = "c1", epoch: int = 1) -> None:
        self.operations.append(
            HighWatermarkEnded(self.now_ms, client, TOPIC, 0, Outcome.OK, high_watermark, epoch)
        )

    def saw_high_watermark(self, high_watermark: int, client: str = "c1", epoch: int = 1) -> None:
        self.requests_high_watermark(client)
        self.sent_high_watermark(high_watermark, client, epoch)

    def lost(
        self,
        first_epoch: int,
        last_epoch: int,
        first_offset: int = 0,
        end_offset: int = OPEN_END,
    ) -> None:
        mark = LossMark(self.now_ms, TOPIC, 0, "unclean election", first_epoch, last_epoch)
        self.operations.append(mark._replace(first_offset=first_offset, end_offset=end_offset))

    def digest(self, broker: int, digest: str, end_offset: int = 10, partition: int = 0) -> None:
        self.operations.append(
            ReplicaDigest(self.now_ms, TOPIC, partition, broker, 0, end_offset, digest)
        )

    def nemesis(self, event: str, detail: str = "") -> None:
        self.operations.append(Nemesis(self.now_ms, event, detail))

    def report(self) -> Report:
        return report_of(self.operations)

    def found(self) -> dict[Anomaly, int]:
        return found_in(self.operations)


def report_of(operations: Sequence[Operation]) -> Report:
    return check_history(enumerate(operations, 1))


def found_in(operations: Sequence[Operation]) -> dict[Anomaly, int]:
    """Anomalies with their counts, without the excused ones."""
    return dict(report_of(operations).findings.counts)
