"""The leaders that brokers report as unreachable. No I/O.

Soft state of one controller term, which expires by itself. Time is what `advance` was last given.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model import TopicPartition
from tidelog_controller.state.metadata_records import Broker
from tidelog_controller.state.partition_cooldowns import PartitionCooldowns
from tidelog_runtime.broker_reports import UnreachableLeader, UnreachableLeadersReport
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member

# Brokers report every second; several reports in a row may be lost or late.
REPORT_EXPIRY_MS = 5_000


class UnreachableLeaders:
    """A leader is a `Member` here, as in its partitions' keys: a broker in one incarnation."""

    def __init__(self) -> None:
        self._now_ms = 0
        # If no broker reaches another, each new leader is reported like the one before.
        self._cooldowns = PartitionCooldowns()
        # By leader: each reporter, and the time until which its report is valid.
        self._reports: dict[Member, dict[int, int]] = {}

    def advance(self, now_ms: int) -> list[TopicPartition]:
        """Drops expired reports; returns the partitions whose leaders may be deposed again."""
        self._now_ms = now_ms
        for leader in list(self._reports):
            reports = self._reports[leader]
            self._keep(leader, {b: until for b, until in reports.items() if until > now_ms})
        return self._cooldowns.advance(now_ms)

    def reported(
        self, report: UnreachableLeadersReport, brokers: Mapping[int, Broker]
    ) -> list[UnreachableLeader]:
        """Replaces the reporter's last report; returns what is new in it.

        `brokers`: the registered brokers. Reports by and about other incarnations are dropped.
        """
        reporter = report.broker_id
        if not _is_registered(Member(reporter, report.broker_epoch), brokers):
            return []
        named = {
            leader: entry
            for entry in report.leaders
            if _is_registered(leader := Member(entry.broker_id, entry.broker_epoch), brokers)
        }
        news = [named[leader] for leader in named if reporter not in self._reports.get(leader, ())]
        for leader in list(self._reports):
            if leader not in named:
                self._withdraw(reporter, leader)
        for leader in named:
            self._reports.setdefault(leader, {})[reporter] = self._now_ms + REPORT_EXPIRY_MS
        return news

    def forget_broker(self, broker_id: int) -> None:
        """Drops the reports by and about a broker whose incarnation has ended."""
        for leader in list(self._reports):
            if leader.broker_id == broker_id:
                del self._reports[leader]
            else:
                self._withdraw(broker_id, leader)

    def reporters(self, partition: TopicPartition, state: LeaderAndIsr) -> tuple[int, ...]:
        """The brokers that cannot reach the partition's leader.

        Empty during the cooldown after a deposition.
        """
        if not self._reports or partition in self._cooldowns:
            return ()
        leader = Member(state.leader, state.leader_broker_epoch)
        return tuple(sorted(self._reports.get(leader, ())))

    def deposed(self, partition: TopicPartition) -> None:
        self._cooldowns.begin(partition)

    def wake_at_ms(self) -> int | None:
        """A report that expires changes no decision."""
        return self._cooldowns.wake_at_ms()

    def _withdraw(self, reporter: int, leader: Member) -> None:
        reports = self._reports[leader]
        self._keep(leader, {b: until for b, until in reports.items() if b != reporter})

    def _keep(self, leader: Member, reports: dict[int, int]) -> None:
        if reports:
            self._reports[leader] = reports
        else:
            del self._reports[leader]


def _is_registered(member: Member, brokers: Mapping[int, Broker]) -> bool:
    broker = brokers.get(member.broker_id)
    return broker is not None and broker.broker_epoch == member.broker_epoch
