"""Reassignments through the controller: every step in the store, and its recipients."""

from __future__ import annotations

import pytest

from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_controller.control.command_dispatcher import LEADER_FIRST_MS
from tidelog_controller.state.events import ConnectionEnded, DialOutcome
from tidelog_runtime.metadata.schema import Moving
from tidelog_runtime.replica_control import LeaderAndIsrCommand, StopPartition, StopReplicaCommand
from unit.controller.driver import KEYS, Driver, cluster

PARTITION = TopicPartition("t", 0)


def with_topic(brokers: tuple[int, ...] = (1, 2, 3, 4, 5), factor: int = 3) -> Driver:
    """A topic of one partition whose replicas are in the order of their ids."""
    driver = cluster(*brokers[:factor])
    driver.create_topic(partitions=1, replication_factor=factor)
    for broker_id in brokers[factor:]:
        driver.start_broker(broker_id)
    driver.watch()
    forget(driver)
    return driver


def forget(driver: Driver) -> None:
    driver.transcript.clear()
    driver.sent.clear()
    driver.published.clear()


def in_sync(driver: Driver, *broker_ids: int) -> int:
    """The leader writes this ISR."""
    revision = driver.leader_writes_isr(0, *broker_ids)
    driver.watch()
    return revision


def stops_to(driver: Driver, broker_id: int) -> list[StopPartition]:
    return [
        stop
        for to, command in driver.sent
        if to == broker_id and isinstance(command, StopReplicaCommand)
        for stop in command.partitions
    ]


def revision(driver: Driver) -> int:
    return driver.store.items[KEYS.leader_and_isr(PARTITION)].mod_revision


def moved(driver: Driver, *target: int) -> tuple[int, ...]:
    """Begins a move; returns the original replicas."""
    original = driver.state().replicas
    driver.request_move(*target)
    return original


@pytest.mark.rule("reassignment-of-replicas")
def test_a_move_is_activated_then_switched_and_sent_to_the_replicas_concerned() -> None:
    driver = with_topic()
    first, second, third = driver.state().replicas
    leader = driver.state().leader
    driver.request_move(first, second, 4)
    assert driver.state().moving == Moving("op", (first, second, third), (first, second, 4))
    assert driver.transcript[0] == "transaction of 1 done"
    assert sorted(driver.transcript[1:]) == [f"broker {b} lead t/0:{leader}" for b in (1, 2, 3, 4)]
    forget(driver)
    in_sync(driver, 1, 2, 3, 4)
    switched = driver.transcript[driver.transcript.index("transaction of 1 done") + 1 :]
    assert f"broker {third} stop t/0" in switched
    assert set(switched) - {f"broker {third} stop t/0"} == {
        f"broker {b} lead t/0:{driver.state().leader}" for b in (first, second, 4)
    }


@pytest.mark.rule("reassignment-done-when-in-sync")
def test_the_switch_happens_when_the_last_target_replica_joins_the_isr() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    in_sync(driver, 1, 2, 3, 4)
    assert driver.state().moving is not None
    in_sync(driver, 1, 3, 4, 5)
    assert (driver.state().replicas, driver.state().moving) == ((1, 4, 5), None)


@pytest.mark.rule("reassignment-of-replicas")
def test_removed_replicas_are_stopped_with_the_revision_of_the_switch() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    in_sync(driver, 1, 2, 3, 4, 5)
    for broker_id in (2, 3):
        (stop,) = stops_to(driver, broker_id)
        assert (stop.revision, stop.delete) == (revision(driver), True)
        assert stop.leader_epoch == driver.state().leader_epoch
    assert not stops_to(driver, 1)


def test_a_deletion_does_not_wait_for_a_departed_broker_that_was_a_replica() -> None:
    """The partition no longer lists that broker; only its pending stop named it (seed 30303)."""
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.brokers[2].lose = True
    in_sync(driver, 1, 2, 3, 4, 5)
    driver.delete_topic()
    driver.pass_time(1_000)
    assert KEYS.leader_and_isr(PARTITION) in driver.store.items
    driver.kill_broker(2)
    driver.watch()
    assert KEYS.leader_and_isr(PARTITION) not in driver.store.items
    assert KEYS.topic("t") not in driver.store.items


def test_a_stop_is_sent_again_until_it_is_acknowledged() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.brokers[2].lose = True
    in_sync(driver, 1, 2, 3, 4, 5)
    sent = len(stops_to(driver, 2))
    driver.pass_time(10_000)
    assert len(stops_to(driver, 2)) > sent
    driver.brokers[2].lose = False
    driver.pass_time(5_000)
    forget(driver)
    driver.pass_time(60_000)
    assert not driver.sent


def test_an_unacknowledged_stop_is_a_backlog_and_an_acknowledged_one_is_not() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.brokers[2].mute = True
    in_sync(driver, 1, 2, 3, 4, 5)
    pending = {b.broker_id: b.pending for b in driver.controller.backlogs(driver.now_ms)}
    assert pending == {1: 0, 2: 1, 3: 0, 4: 0, 5: 0}


def test_no_stop_is_pending_for_a_broker_that_died_before_it() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.brokers[2].lose = True
    in_sync(driver, 1, 2, 3, 4, 5)
    driver.kill_broker(2)
    driver.watch()
    forget(driver)
    driver.pass_time(60_000)
    assert not driver.sent
    assert [b.broker_id for b in driver.controller.backlogs(driver.now_ms)] == [1, 3, 4, 5]


def test_the_full_state_of_a_returned_broker_does_not_name_replicas_moved_away() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.kill_broker(2)
    driver.watch()
    in_sync(driver, 1, 3, 4, 5)
    forget(driver)
    driver.start_broker(2)
    driver.watch()
    assert driver.transcript[-1] == "broker 2 full state"
    assert not stops_to(driver, 2)


def test_after_a_lost_connection_the_full_state_and_the_stop_are_sent_again() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.brokers[2].lose = True
    in_sync(driver, 1, 2, 3, 4, 5)
    driver.brokers[2].lose = False
    forget(driver)
    epoch = driver.brokers[2].broker_epoch
    driver.feed(ConnectionEnded(2, epoch, DialOutcome.ACCEPTED, 3))
    driver.pass_time(5_000)
    assert driver.transcript == ["broker 2 full state", "broker 2 stop t/0"]


def test_a_replica_assigned_again_before_its_stop_is_informed_and_not_stopped() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.brokers[2].mute = True
    in_sync(driver, 1, 2, 3, 4, 5)
    left_in = driver.state().leader_epoch - 1
    driver.request_move(1, 2, 4)
    driver.brokers[2].mute = False
    late = driver.unanswered[-1]
    driver.answer(late)
    _, last = [each for each in driver.sent if each[0] == 2][-1]
    assert isinstance(last, LeaderAndIsrCommand)
    (partition,) = last.partitions
    assert partition.revision == revision(driver)
    assert partition.state.leader_epoch > left_in


@pytest.mark.rule("new-controller-continues-reassignments")
def test_a_new_controller_continues_from_the_key_alone() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.leader_writes_isr(0, 1, 2, 3, 4, 5)
    driver.take_over()
    assert (driver.state().replicas, driver.state().moving) == ((1, 4, 5), None)


def test_a_new_controller_removes_previous_replicas_by_its_full_state() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.brokers[2].lose = True
    in_sync(driver, 1, 2, 3, 4, 5)
    driver.brokers[2].lose = False
    forget(driver)
    driver.take_over()
    assert "broker 2 full state" in driver.transcript
    assert not stops_to(driver, 2)


@pytest.mark.parametrize("applied", [True, False])
def test_an_unanswered_switch_is_looked_up_and_made_once(applied: bool) -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    epoch = driver.state().leader_epoch
    driver.unanswered_transactions = 1
    driver.apply_unanswered = applied
    in_sync(driver, 1, 2, 3, 4, 5)
    assert (driver.state().replicas, driver.state().leader_epoch) == ((1, 4, 5), epoch + 1)


@pytest.mark.rule("elections-during-reassignment")
def test_a_switch_that_conflicts_with_an_isr_change_is_evaluated_again() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    in_sync(driver, 1, 2, 3, 4)

    def leader_first(_: object) -> None:
        # Broker 5 is gone from the ISR by the time the switch reaches the store.
        driver.before_transaction = None
        driver.leader_writes_isr(0, 1, 2, 3, 4)

    driver.before_transaction = leader_first
    in_sync(driver, 1, 2, 3, 4, 5)
    assert driver.state().moving is not None


@pytest.mark.rule("elections-during-reassignment")
def test_a_leader_that_dies_during_a_move_is_replaced_and_the_move_continues() -> None:
    driver = with_topic()
    original = moved(driver, 4, 5)
    leader = driver.state().leader
    moving = driver.state().moving
    driver.kill_broker(leader)
    driver.watch()
    state = driver.state()
    assert (state.leader in original, state.moving) == (True, moving)
    in_sync(driver, *sorted(state.isr_ids), 4, 5)
    assert (driver.state().replicas, driver.state().leader) == ((4, 5), 4)


def test_a_move_without_a_leader_waits_for_one() -> None:
    driver = with_topic(brokers=(1, 2), factor=1)
    (only,) = driver.state().replicas
    other = 3 - only
    driver.request_move(other)
    driver.kill_broker(only)
    driver.watch()
    assert (driver.state().leader, driver.state().moving is None) == (NO_LEADER, False)
    driver.start_broker(only, whole_since=1)
    driver.watch()
    assert driver.state().leader == only
    in_sync(driver, 1, 2)
    assert driver.state().replicas == (other,)


def test_a_cancelled_move_is_reversed_and_stops_the_added_replicas() -> None:
    driver = with_topic()
    original = moved(driver, 1, 4, 5)
    in_sync(driver, 1, 2, 3, 4)
    forget(driver)
    driver.request_move(1, 4, 5, cancelled=True)
    state = driver.state()
    assert (state.replicas, set(state.isr_ids), state.moving) == (original, {1, 2, 3}, None)
    assert [len(stops_to(driver, b)) for b in (1, 2, 3, 4, 5)] == [0, 0, 0, 1, 1]


def test_a_waiting_cancellation_is_carried_out_when_it_becomes_possible() -> None:
    driver = with_topic()
    original = moved(driver, 4, 5)
    in_sync(driver, 1, 2, 3, 4)
    leader = driver.state().leader
    others = [b for b in original if b != leader]
    for broker_id in others:
        driver.kill_broker(broker_id)
    driver.watch()
    driver.request_move(4, 5, cancelled=True)
    assert driver.state().moving is not None
    driver.start_broker(others[0])
    driver.watch()
    in_sync(driver, leader, others[0], 4)
    assert (driver.state().replicas, driver.state().moving) == (original, None)


def test_the_deletion_of_the_topic_ends_a_move_and_stops_every_replica() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    forget(driver)
    for broker in driver.brokers.values():
        broker.mute = True
    driver.delete_topic()
    state = driver.state()
    assert (state.moving, state.leader) == (None, NO_LEADER)
    assert [len(stops_to(driver, b)) for b in (1, 2, 3, 4, 5)] == [1] * 5


def test_the_keys_of_a_deleted_topic_stay_until_previous_replicas_have_stopped_too() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.brokers[2].lose = True
    in_sync(driver, 1, 2, 3, 4, 5)
    driver.delete_topic()
    assert driver.states()
    driver.brokers[2].lose = False
    driver.pass_time(5_000)
    assert not driver.states()


def test_a_leader_removed_by_a_switch_is_no_longer_fetched_from() -> None:
    driver = with_topic()
    leader = driver.state().leader
    rest = [b for b in driver.state().replicas if b != leader]
    driver.request_move(*rest, 4)
    in_sync(driver, 1, 2, 3, 4)
    state = driver.state()
    assert (state.leader, state.replicas) == (rest[0], (*rest, 4))
    assert len(stops_to(driver, leader)) == 1


def test_a_stopping_target_is_waited_for() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    driver.start_broker(5, state="stopping")
    driver.watch()
    in_sync(driver, 1, 2, 3, 4, 5)
    assert driver.state().moving is not None


# -- published state changes -----------------------------------------------------------


def stages(driver: Driver, kind: Kind) -> list[tuple[Stage, Cause]]:
    return [
        (published.stage, published.change.cause) for published in driver.published_events(kind)
    ]


def test_each_step_is_published_with_its_kind() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    in_sync(driver, 1, 2, 3, 4, 5)
    both = [(Stage.REQUESTED, Cause.REASSIGNED), (Stage.COMPLETED, Cause.REASSIGNED)]
    assert stages(driver, Kind.MOVE_ACTIVATED) == both
    assert stages(driver, Kind.MOVE_SWITCHED) == both
    driver.request_move(1, 2, 3)
    driver.request_move(1, 2, 3, cancelled=True)
    assert stages(driver, Kind.MOVE_CANCELLED) == [
        (Stage.REQUESTED, Cause.CANCELLED),
        (Stage.COMPLETED, Cause.CANCELLED),
    ]


def test_a_step_names_its_operation_source_and_target() -> None:
    driver = with_topic()
    original = moved(driver, 1, 4, 5)
    published = driver.published_events(Kind.MOVE_ACTIVATED)[0]
    assert published.details["operation"] == "op"
    assert (published.details["original"], published.details["target"]) == (
        list(original),
        [1, 4, 5],
    )
    assert published.change.trace_id == "f" * 32


def test_the_deletion_of_a_previous_replica_belongs_to_the_change_that_switched() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    in_sync(driver, 1, 2, 3, 4, 5)
    switch = driver.published_events(Kind.MOVE_SWITCHED)[0].change
    deleted = [
        published
        for published in driver.published_events(Kind.DELETE)
        if published.change == switch
    ]
    assert sorted((published.broker, published.stage.value) for published in deleted) == [
        (2, "acknowledged"),
        (2, "requested"),
        (3, "acknowledged"),
        (3, "requested"),
    ]


# -- order of commands -----------------------------------------------------------------


def informed(driver: Driver) -> set[int]:
    return {broker_id for broker_id, _ in driver.sent}


def test_a_step_is_sent_to_the_leader_first_and_to_others_once_it_is_acknowledged() -> None:
    driver = with_topic()
    leader = driver.state().leader
    driver.brokers[leader].mute = True
    moved(driver, 1, 2, 4)
    assert informed(driver) == {leader}
    driver.answer(driver.unanswered[-1])
    assert informed(driver) == {1, 2, 3, 4}


def test_an_unresponsive_leader_does_not_keep_a_step_from_the_others() -> None:
    driver = with_topic()
    leader = driver.state().leader
    driver.brokers[leader].mute = True
    moved(driver, 1, 2, 4)
    driver.pass_time(LEADER_FIRST_MS - 1)
    assert informed(driver) == {leader}
    driver.pass_time(1)
    assert informed(driver) == {1, 2, 3, 4}


def test_a_previous_replica_is_stopped_without_waiting_for_the_leader() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    leader = driver.state().leader
    driver.brokers[leader].mute = True
    forget(driver)
    in_sync(driver, 1, 2, 3, 4, 5)
    assert stops_to(driver, 3)


def test_an_election_is_sent_to_all_at_once() -> None:
    driver = with_topic()
    moved(driver, 1, 4, 5)
    previous = driver.state().leader
    for broker in driver.brokers.values():
        broker.mute = True
    forget(driver)
    driver.kill_broker(previous)
    driver.watch()
    assert informed(driver) == {1, 2, 3, 4, 5} - {previous}


def test_an_election_meanwhile_ends_the_wait_for_the_previous_leader() -> None:
    driver = with_topic()
    leader = driver.state().leader
    driver.brokers[leader].mute = True
    moved(driver, 1, 2, 4)
    forget(driver)
    driver.kill_broker(leader)
    driver.watch()
    assert informed(driver) == {1, 2, 3, 4} - {leader}
