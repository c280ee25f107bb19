"""Changes that no controller, or no broker, was running to see."""

from __future__ import annotations

import pytest

from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Cause, Kind
from tidelog_runtime.metadata.schema import decode_topic
from tidelog_runtime.replica_control import LeaderAndIsrCommand
from unit.controller.driver import KEYS, Driver, cluster


def with_topic(partitions: int, factor: int = 3) -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=partitions, replication_factor=factor)
    return driver


@pytest.mark.rule("new-controller-continues-elections")
def test_a_leader_that_dies_while_no_controller_is_active_is_replaced_by_the_next() -> None:
    driver = with_topic(partitions=3)
    led = [state.leader == 1 for state in driver.states()]
    assert any(led)
    driver.kill_broker(1)
    driver.take_over()
    assert all(state.leader in (2, 3) for state in driver.states())
    assert [state.leader_epoch for state in driver.states()] == [int(was_led) for was_led in led]
    assert all(1 not in state.isr_ids for state in driver.states())


@pytest.mark.rule("new-controller-continues-elections")
def test_a_partition_found_without_a_leader_is_led_once_its_member_returns() -> None:
    driver = with_topic(partitions=1, factor=1)
    (holder,) = driver.state().replicas
    epoch = driver.brokers[holder].broker_epoch
    driver.kill_broker(holder)
    driver.watch()
    assert driver.state().leader == NO_LEADER
    driver.start_broker(holder, whole_since=epoch)
    driver.take_over()
    assert (driver.state().leader, driver.state().leader_epoch) == (holder, 2)


@pytest.mark.rule("starting-broker-receives-its-replicas", "commands-are-rpcs")
def test_a_broker_that_was_down_learns_at_its_start_what_changed_meanwhile() -> None:
    driver = with_topic(partitions=3)
    epoch = driver.brokers[2].broker_epoch
    driver.kill_broker(2)
    driver.watch()
    driver.sent.clear()
    driver.start_broker(2, whole_since=epoch)
    driver.watch()
    first = next(command for commands, command in driver.sent if commands == 2)
    assert isinstance(first, LeaderAndIsrCommand)
    assert first.full_state
    assert [p.state for p in first.partitions] == driver.states()
    assert first.broker_epoch == driver.brokers[2].broker_epoch


# Values that cannot be read.


def full_states(driver: Driver) -> dict[int, LeaderAndIsrCommand]:
    """The last full state that each broker was sent, by broker."""
    return {
        broker_id: command
        for broker_id, command in driver.sent
        if isinstance(command, LeaderAndIsrCommand) and command.full_state
    }


def named(command: LeaderAndIsrCommand) -> set[TopicPartition]:
    return {wanted.partition for wanted in command.partitions}


def taken_over_with(driver: Driver, key: str) -> bytes:
    """A controller takes over that could never read this key; returns the value of the key."""
    value = driver.store.items[key].value
    driver.store.put(key, b'{"of a later": "version"}')
    driver.sent.clear()
    driver.take_over()
    return value


UNREADABLE = [KEYS.topic("t"), KEYS.leader_and_isr(TopicPartition("t", 0))]


@pytest.mark.parametrize("key", UNREADABLE)
def test_replicas_of_a_topic_that_a_new_controller_cannot_read_are_not_strays(
    key: str,
) -> None:
    driver = with_topic(partitions=2)
    driver.create_topic("u", partitions=1)
    taken_over_with(driver, key)
    commands = full_states(driver)
    assert [sorted(command.unreadable_topics) for command in commands.values()] == [["t"]] * 3
    assert all(TopicPartition("u", 0) in named(command) for command in commands.values())
    assert all(TopicPartition("t", 0) not in named(command) for command in commands.values())


@pytest.mark.parametrize("key", UNREADABLE)
def test_once_it_can_be_read_every_broker_gets_its_full_state_again(key: str) -> None:
    driver = with_topic(partitions=2)
    value = taken_over_with(driver, key)
    driver.store.put(key, value)
    driver.watch()
    for command in full_states(driver).values():
        assert command.unreadable_topics == ()
        assert named(command) == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert driver.published_events(Kind.COMMAND)[-1].change.cause is Cause.KEY_MENDED


@pytest.mark.parametrize("key", UNREADABLE)
def test_a_leader_that_has_gone_is_replaced_once_its_partition_can_be_read(key: str) -> None:
    driver = with_topic(partitions=1)
    previous = driver.state().leader
    value = taken_over_with(driver, key)
    driver.kill_broker(previous)
    driver.watch()
    driver.store.put(key, value)
    driver.watch()
    assert driver.state().leader not in (previous, NO_LEADER)


@pytest.mark.parametrize("key", UNREADABLE)
def test_an_addition_to_an_unreadable_topic_continues_once_it_can_be_read(key: str) -> None:
    driver = with_topic(partitions=1)
    driver.hold_transactions = True
    driver.add_partitions(2)
    written = next(iter(driver.held))
    driver.store.transact(written.transaction)
    value = taken_over_with(driver, key)
    assert KEYS.partition_addition("t") in driver.store.items
    driver.store.put(key, value)
    driver.watch()
    assert driver.state(1).leader != NO_LEADER
    assert KEYS.partition_addition("t") not in driver.store.items


def test_no_replica_is_placed_where_an_unreadable_partition_may_still_have_one() -> None:
    driver = with_topic(partitions=3)
    driver.remove_partitions(1)
    key = KEYS.leader_and_isr(TopicPartition("t", 0))
    value = taken_over_with(driver, key)
    driver.add_partitions(2)
    assert decode_topic(driver.store.items[KEYS.topic("t")].value).partitions == 2
    assert KEYS.leader_and_isr(TopicPartition("t", 1)) not in driver.store.items
    driver.store.put(key, value)
    driver.watch()
    assert driver.state(1).leader != NO_LEADER
