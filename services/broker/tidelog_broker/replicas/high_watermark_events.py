"""Emits which high watermarks are stalled, which brokers hold them, and when they resume."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.state_changes.event import NO_CHANGE, Change, Detail, Kind, Stage
from tidelog_broker.core.high_watermark_watch import HighWatermarkWatch, holders_of
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class HighWatermarkEvents:
    """Events of stalled high watermarks.

    `stalled_after_ms`: how long records wait before that counts as a stall.
    """

    def __init__(self, stalled_after_ms: int, broker_id: int, log: StateChangeLog) -> None:
        self._watch = HighWatermarkWatch(stalled_after_ms)
        self._broker_id = broker_id
        self._log = log
        # The change of each stall that lasts; bounded by the partitions led here.
        self._stalls: dict[Partition, Change] = {}

    def judge(self, partition: Partition, now_ms: int) -> None:
        verdict = self._watch.check(partition, now_ms)
        if verdict is None:
            return
        if not verdict.stalled:
            change = self._stalls.pop(partition, NO_CHANGE)
            self._emit(Kind.HIGH_WATERMARK_RESUMED, partition, change, stalled_ms=verdict.for_ms)
            return
        holders = holders_of(partition, self._broker_id)
        subject = f"hw-{partition.topic_id}-{partition.name.partition}"
        change = self._log.condition_change(subject, holders.cause, verdict.for_ms)
        self._stalls[partition] = change
        self._emit(
            Kind.HW_STALLED,
            partition,
            change,
            brokers=list(holders.brokers),
            end_offsets=list(holders.end_offsets),
            stalled_ms=verdict.for_ms,
        )

    def restart_timers(self, now_ms: int) -> None:
        """See `HighWatermarkWatch.restart_timers`."""
        self._watch.restart_timers(now_ms)

    @property
    def waiting(self) -> Iterable[Partition]:
        """See `HighWatermarkWatch.waiting`."""
        return self._watch.waiting

    def forget_led_no_more(self) -> None:
        self._watch.forget_led_no_more()
        if self._stalls:
            stalls = self._stalls.items()
            self._stalls = {p: change for p, change in stalls if p.leading is not None}

    def waiting_ms(self, partition: Partition, now_ms: int) -> int | None:
        """See `HighWatermarkWatch.waiting_ms`."""
        return self._watch.waiting_ms(partition, now_ms)

    def _emit(self, kind: Kind, partition: Partition, change: Change, **details: Detail) -> None:
        state = partition.state
        assert state is not None, "what is led has a state"
        self._log.emit(
            kind,
            Stage.COMPLETED,
            change=change,
            name=partition.name,
            topic_id=partition.topic_id,
            broker=self._broker_id,
            # The present incarnation of the broker leads it.
            broker_epoch=state.leader_broker_epoch,
            controller_epoch=state.controller_epoch,
            leader_epoch=partition.leader_epoch,
            revision=partition.revision,
            details={
                **details,
                "high_watermark": partition.high_watermark,
                "log_end_offset": partition.log.log_end_offset,
            },
        )
