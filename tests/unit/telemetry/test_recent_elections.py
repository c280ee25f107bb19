"""How often leaders are elected, according to a broker's reports."""

from __future__ import annotations

from tidelog.inspection.controller_reports import LeaseEnds
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_runtime.telemetry.recent_elections import (
    MAX_BROKERS,
    WINDOW_MS,
    ElectionCounts,
    LeaseEndCounts,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

SEA, BAY = TopicPartition("sea", 0), TopicPartition("bay", 1)


class _Clock:
    now = 0

    def monotonic_ms(self) -> int:
        return self.now

    wall_ms = monotonic_ms


class _World:
    def __init__(self) -> None:
        self.clock = _Clock()
        self.log = StateChangeLog("broker-1", self.clock)
        self.counts = ElectionCounts(self.clock)
        self.log.add_sink(self.counts.take)

    def role(self, name: TopicPartition, leader_epoch: int, controller_epoch: int = 1) -> None:
        self.log.emit(
            Kind.BECOME_FOLLOWER,
            Stage.COMPLETED,
            name=name,
            controller_epoch=controller_epoch,
            leader_epoch=leader_epoch,
        )


def test_each_new_epoch_of_a_partition_is_an_election_except_the_first_known_one() -> None:
    world = _World()
    for epoch in (3, 3, 4, 5):
        world.role(SEA, epoch)
    world.role(BAY, 9)
    recent = world.counts.recent
    assert (recent.leaders, recent.topic, recent.partition) == (2, "sea", 0)
    assert (recent.controllers, recent.registrations_lost, recent.last_ms) == (0, 0, 0)


def test_a_controller_of_many_partitions_counts_once() -> None:
    world = _World()
    for controller_epoch in (1, 1, 2, 2, 3):
        world.role(SEA, 3, controller_epoch)
    assert world.counts.recent.controllers == 2


def test_elections_older_than_the_window_do_not_count() -> None:
    world = _World()
    world.log.emit(Kind.REGISTRATION_LOST, Stage.COMPLETED)
    world.role(SEA, 1)
    world.role(SEA, 2)
    world.clock.now = WINDOW_MS - 1
    recent = world.counts.recent
    assert (recent.registrations_lost, recent.leaders, recent.last_ms) == (1, 1, WINDOW_MS - 1)
    world.clock.now = WINDOW_MS
    recent = world.counts.recent
    assert (recent.registrations_lost, recent.leaders, recent.last_ms) == (0, 0, NOT_KNOWN)


def test_a_removed_replica_is_forgotten() -> None:
    world = _World()
    for epoch in (1, 2):
        world.role(SEA, epoch)
    world.log.emit(Kind.DELETE, Stage.COMPLETED, name=SEA)
    assert world.counts.recent.leaders == 0


def test_expired_leases_are_counted_by_broker_and_other_ends_are_not() -> None:
    clock = _Clock()
    log, counts = StateChangeLog("controller-1", clock), LeaseEndCounts(clock)
    log.add_sink(counts.take)

    def leaves(broker: int, cause: Cause) -> None:
        log.emit(Kind.BROKER_LEFT, Stage.COMPLETED, cause=cause, broker=broker)

    leaves(2, Cause.BROKER_LEASE_ENDED)
    clock.now = 30_000
    leaves(2, Cause.BROKER_LEASE_ENDED)
    leaves(1, Cause.BROKER_STOPPED)
    leaves(3, Cause.BROKER_CRASHED)
    clock.now = 40_000
    assert counts.recent == (LeaseEnds(2, 2, WINDOW_MS, 10_000),)
    clock.now = WINDOW_MS
    assert counts.recent == (LeaseEnds(2, 1, WINDOW_MS, 90_000),)
    for broker in range(MAX_BROKERS + 5):
        leaves(broker, Cause.BROKER_LEASE_ENDED)
    assert len(counts.recent) == MAX_BROKERS
