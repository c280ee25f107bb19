"""Reports of unreachable leaders: which of them count, and for how long."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.model import TopicPartition
from tidelog_controller.state.metadata_records import Broker
from tidelog_controller.state.partition_cooldowns import (
    FIRST_COOLDOWN_MS,
    MAX_COOLDOWN_MS,
    MEMORY_MS,
)
from tidelog_controller.state.unreachable_leaders import (
    REPORT_EXPIRY_MS,
    UnreachableLeaders,
)
from tidelog_runtime.broker_reports import UnreachableLeader, UnreachableLeadersReport
from tidelog_runtime.metadata.schema import (
    BrokerRegistration,
    LeaderAndIsr,
    Member,
)

PARTITION = TopicPartition("t", 0)


def epoch_of(broker_id: int) -> int:
    return 100 + broker_id


def registered(*broker_ids: int) -> dict[int, Broker]:
    return {
        b: Broker(b, BrokerRegistration(f"b{b}:1", "", f"u{b}", "running", 0, 0), epoch_of(b))
        for b in broker_ids
    }


def led_by(leader: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id="a-topic",
        replicas=(1, 2, 3),
        controller_epoch=1,
        leader=leader,
        leader_epoch=1,
        isr=(Member(leader, epoch_of(leader)),),
        eligible=(),
        min_isr=2,
    )


def report(reporter: int, *leaders: int) -> UnreachableLeadersReport:
    named = tuple(UnreachableLeader(b, epoch_of(b), 2_500) for b in leaders)
    return UnreachableLeadersReport(reporter, epoch_of(reporter), named)


class Reports:
    def __init__(self) -> None:
        self.unreachable = UnreachableLeaders()
        self.brokers = registered(1, 2, 3)
        self.unreachable.advance(1_000)

    def take(self, taken: UnreachableLeadersReport) -> list[int]:
        """The leaders that are newly reported."""
        return [leader.broker_id for leader in self.unreachable.reported(taken, self.brokers)]

    def against(self, leader: int) -> tuple[int, ...]:
        return self.unreachable.reporters(PARTITION, led_by(leader))


def test_reporters_are_the_brokers_that_name_the_current_leader() -> None:
    reports = Reports()
    reports.take(report(3, 1))
    reports.take(report(2, 1))
    reports.take(report(1, 3))
    assert reports.against(1) == (2, 3)
    assert reports.against(2) == ()


def test_a_repeated_report_is_not_published() -> None:
    reports = Reports()
    assert reports.take(report(2, 1)) == [1]
    assert reports.take(report(2, 1, 3)) == [3]


def test_a_report_expires() -> None:
    reports = Reports()
    reports.take(report(2, 1))
    reports.unreachable.advance(1_000 + REPORT_EXPIRY_MS - 1)
    assert reports.against(1) == (2,)
    reports.unreachable.advance(1_000 + REPORT_EXPIRY_MS)
    assert reports.against(1) == ()


def test_a_repeated_report_extends_it() -> None:
    reports = Reports()
    reports.take(report(2, 1))
    reports.unreachable.advance(3_000)
    reports.take(report(2, 1))
    reports.unreachable.advance(1_000 + REPORT_EXPIRY_MS)
    assert reports.against(1) == (2,)


def test_a_report_without_leaders_withdraws_the_previous_one() -> None:
    reports = Reports()
    reports.take(report(2, 1, 3))
    reports.take(report(2, 3))
    assert (reports.against(1), reports.against(3)) == ((), (2,))
    reports.take(report(2))
    assert reports.against(3) == ()


def test_a_previous_incarnation_of_a_broker_reports_nothing() -> None:
    reports = Reports()
    reports.take(UnreachableLeadersReport(2, 7, (UnreachableLeader(1, epoch_of(1), 1),)))
    assert reports.against(1) == ()


def test_a_report_about_a_previous_incarnation_of_a_leader_has_no_effect() -> None:
    reports = Reports()
    reports.take(UnreachableLeadersReport(2, epoch_of(2), (UnreachableLeader(1, 7, 1),)))
    assert reports.against(1) == ()


def test_a_leader_elected_in_another_incarnation_is_not_affected() -> None:
    reports = Reports()
    reports.take(report(2, 1))
    elsewhen = LeaderAndIsr(
        **{
            **{name: getattr(led_by(1), name) for name in led_by(1).__slots__},
            "isr": (Member(1, 7),),
        }
    )
    assert reports.unreachable.reporters(PARTITION, elsewhen) == ()


def test_the_end_of_an_incarnation_ends_reports_by_it_and_about_it() -> None:
    reports = Reports()
    reports.take(report(2, 1, 3))
    reports.take(report(3, 1))
    reports.unreachable.forget_broker(3)
    assert (reports.against(1), reports.against(3)) == ((2,), ())


def test_a_partition_waits_after_a_deposition() -> None:
    reports = Reports()
    reports.take(report(2, 1))
    reports.unreachable.deposed(PARTITION)
    assert reports.against(1) == ()
    assert reports.unreachable.wake_at_ms() == 1_000 + FIRST_COOLDOWN_MS
    assert reports.unreachable.advance(1_000 + FIRST_COOLDOWN_MS - 1) == []
    assert reports.unreachable.advance(1_000 + FIRST_COOLDOWN_MS) == [PARTITION]
    assert reports.unreachable.wake_at_ms() is None


def rests_of(reports: Reports, begins_ms: Iterable[int]) -> list[int]:
    """How long the partition waits after each deposition."""
    lengths = []
    for begin_ms in begins_ms:
        reports.unreachable.advance(begin_ms)
        reports.unreachable.deposed(PARTITION)
        end_ms = reports.unreachable.wake_at_ms()
        assert end_ms is not None
        lengths.append(end_ms - begin_ms)
    return lengths


def test_the_wait_doubles_after_each_deposition_that_follows_soon() -> None:
    lengths = rests_of(Reports(), range(0, 200_000, 40_000))
    assert lengths == [FIRST_COOLDOWN_MS, 10_000, 20_000, MAX_COOLDOWN_MS, MAX_COOLDOWN_MS]


def test_an_old_deposition_does_not_lengthen_the_wait() -> None:
    lengths = rests_of(Reports(), [0, MEMORY_MS])
    assert lengths == [FIRST_COOLDOWN_MS, FIRST_COOLDOWN_MS]


def test_other_partitions_do_not_wait() -> None:
    reports = Reports()
    reports.take(report(2, 1))
    reports.unreachable.deposed(PARTITION)
    assert reports.unreachable.reporters(TopicPartition("t", 1), led_by(1)) == (2,)
