"""How long a broker reports repaired damage."""

from __future__ import annotations

import pytest

from tidelog.inspection.state_reports import RepairedDamage
from tidelog.state_changes.event import Cause, Detail, Kind, Stage, StateChange
from tidelog_broker.damage.recent_damage import MAX_REPAIRED, REPORTED_FOR_MS, RecentDamage


class ManualClock:
    now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def recent(clock: ManualClock) -> RecentDamage:
    return RecentDamage(clock)


def change(
    kind: Kind,
    at_ms: int,
    partition: int = 0,
    stage: Stage = Stage.COMPLETED,
    cause: Cause = Cause.NONE,
    **details: Detail,
) -> StateChange:
    found = {"why": "a bit flipped", **details}
    return StateChange(
        at_ms, "broker-1", kind, stage, cause, topic="sea", partition=partition, details=found
    )


def test_damage_is_reported_once_it_is_repaired(recent: RecentDamage) -> None:
    recent.take(change(Kind.REPLICA_DAMAGED, 10))
    assert recent.repaired == []
    recent.take(change(Kind.REPLICA_REPAIRED, 20, stage=Stage.FAILED))
    assert recent.repaired == []
    recent.take(change(Kind.REPLICA_REPAIRED, 30))
    assert recent.repaired == [RepairedDamage("sea", 0, 10, 30, "a bit flipped")]


@pytest.mark.parametrize(("cause", "reported"), [(Cause.CORRUPT, 1), (Cause.DISK_ERROR, 0)])
def test_data_cut_at_a_start_counts_as_repaired(
    recent: RecentDamage, cause: Cause, reported: int
) -> None:
    recent.take(change(Kind.REPLICA_DAMAGED, 10, cause=cause, at_start=True))
    assert len(recent.repaired) == reported
    recent.take(change(Kind.REPLICA_DAMAGED, 20, partition=1, cause=cause, at_start=False))
    assert len(recent.repaired) == reported


def test_a_repair_without_damage_found_here_is_not_reported(recent: RecentDamage) -> None:
    recent.take(change(Kind.REPLICA_REPAIRED, 30))
    assert recent.repaired == []


def test_repaired_damage_is_forgotten_after_a_while(
    recent: RecentDamage, clock: ManualClock
) -> None:
    recent.take(change(Kind.REPLICA_DAMAGED, 10))
    recent.take(change(Kind.REPLICA_REPAIRED, 30))
    clock.now_ms += REPORTED_FOR_MS - 1
    assert len(recent.repaired) == 1
    clock.now_ms += 1
    assert recent.repaired == []


def test_only_the_newest_repairs_are_kept(recent: RecentDamage) -> None:
    for partition in range(MAX_REPAIRED + 1):
        recent.take(change(Kind.REPLICA_DAMAGED, 10, partition))
        recent.take(change(Kind.REPLICA_REPAIRED, 30, partition))
    assert [damage.partition for damage in recent.repaired] == list(range(1, MAX_REPAIRED + 1))


def test_damage_of_a_deleted_replica_is_forgotten(recent: RecentDamage) -> None:
    recent.take(change(Kind.REPLICA_DAMAGED, 10))
    recent.take(change(Kind.DELETE, 20))
    recent.take(change(Kind.REPLICA_REPAIRED, 30))
    assert recent.repaired == []
