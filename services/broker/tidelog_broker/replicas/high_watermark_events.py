"""Tells which high watermarks stand still, who holds them, and when they move again."""

from __future__ import annotations

from tidelog.state_changes.event import Cause, Detail, Kind, Stage
from tidelog_broker.partition.partition import Partition
from tidelog_broker.replicas.high_watermark_watch import HighWatermarkWatch, holders_of
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class HighWatermarkEvents:
    """`stalled_after_ms`: how long records wait until it is told."""

    def __init__(self, stalled_after_ms: int, broker_id: int, log: StateChangeLog) -> None:
        self._watch = HighWatermarkWatch(stalled_after_ms)
        self._broker_id = broker_id
        self._log = log

    def judge(self, partition: Partition, now_ms: int) -> None:
        verdict = self._watch.look(partition, now_ms)
        if verdict is None:
            return
        if not verdict.stalled:
            self._tell(Kind.HW_MOVES_AGAIN, partition, Cause.NONE, stalled_ms=verdict.for_ms)
            return
        holders = holders_of(partition, self._broker_id)
        self._tell(
            Kind.HW_STALLED,
            partition,
            holders.cause,
            brokers=list(holders.brokers),
            end_offsets=list(holders.end_offsets),
            stalled_ms=verdict.for_ms,
        )

    def forget_led_no_more(self) -> None:
        self._watch.forget_led_no_more()

    def waiting_ms(self, partition: Partition, now_ms: int) -> int | None:
        """As `HighWatermarkWatch.waiting_ms`."""
        return self._watch.waiting_ms(partition, now_ms)

    def _tell(self, kind: Kind, partition: Partition, cause: Cause, **details: Detail) -> None:
        self._log.tell(
            kind,
            Stage.COMPLETED,
            cause=cause,
            name=partition.name,
            topic_id=partition.topic_id,
            broker=self._broker_id,
            leader_epoch=partition.leader_epoch,
            revision=partition.revision,
            details={
                **details,
                "high_watermark": partition.high_watermark,
                "log_end_offset": partition.log.log_end_offset,
            },
        )
