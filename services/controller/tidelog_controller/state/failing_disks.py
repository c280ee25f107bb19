"""The brokers that report that their disks reject replicas. No I/O.

Soft state of one controller term, which expires by itself. Time is what `advance` was last given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.state.known import Broker
from tidelog_controller.state.partition_rests import PartitionRests
from tidelog_runtime.broker_reports import DiskReport, FailingLeadership
from tidelog_runtime.metadata.schema import LeaderAndIsr

# Brokers report every second; several reports in a row may be lost or late.
REPORT_EXPIRY_MS = 5_000


class _Report(NamedTuple):
    broker_epoch: int
    until_ms: int
    led: Mapping[TopicPartition, FailingLeadership]


class FailingDisks:
    """The reports of failing disks.

    If every disk is full, a leadership would move in circles. So after each transfer the partition
    rests (`PartitionRests`), and a broker whose disk rejects anything gets no leadership.
    """

    def __init__(self) -> None:
        self._now_ms = 0
        self._reports: dict[int, _Report] = {}
        self._rests = PartitionRests()

    def advance(self, now_ms: int) -> list[TopicPartition]:
        """Drops expired reports; returns the partitions that may be transferred again."""
        self._now_ms = now_ms
        for broker_id in [b for b, r in self._reports.items() if r.until_ms <= now_ms]:
            del self._reports[broker_id]
        return self._rests.advance(now_ms)

    def reported(
        self, report: DiskReport, brokers: Mapping[int, Broker]
    ) -> tuple[FailingLeadership, ...]:
        """Replaces the broker's previous report; returns the leaderships that it names.

        A report by another incarnation than the registered one is dropped.
        """
        broker = brokers.get(report.broker_id)
        if broker is None or broker.broker_epoch != report.broker_epoch:
            return ()
        self._reports.pop(report.broker_id, None)
        if not report.is_rejecting:
            return ()
        led = {failing.partition: failing for failing in report.led}
        until_ms = self._now_ms + REPORT_EXPIRY_MS
        self._reports[report.broker_id] = _Report(report.broker_epoch, until_ms, led)
        return report.led

    def forget_broker(self, broker_id: int) -> None:
        """Drops the report of a broker whose incarnation has ended."""
        self._reports.pop(broker_id, None)

    @property
    def rejecting(self) -> Collection[int]:
        """A live view of the brokers whose disks reject at least one replica."""
        return self._reports.keys()

    def cause(self, partition: TopicPartition, state: LeaderAndIsr) -> Cause | None:
        """Why the leader of this state cannot use its log.

        None: it can, or the partition rests after a transfer.
        """
        report = self._reports.get(state.leader)
        if report is None or partition in self._rests:
            return None
        failing = report.led.get(partition)
        if (
            failing is None
            or report.broker_epoch != state.leader_broker_epoch
            or failing.leader_epoch != state.leader_epoch
        ):
            return None
        return Cause.DISK_FULL if failing.cause is Cause.DISK_FULL else Cause.DISK_ERROR

    def transferred(self, partition: TopicPartition) -> None:
        self._rests.begin(partition)

    def wake_at_ms(self) -> int | None:
        """A report that expires changes no decision."""
        return self._rests.wake_at_ms()
