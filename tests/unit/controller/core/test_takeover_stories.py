"""Stories of what changed while nobody was there to see it: no controller, or not the broker."""

from __future__ import annotations

from tidelog.model import NO_LEADER
from tidelog_runtime.replica_control import LeaderAndIsrCommand
from unit.controller.driver import Driver, cluster


def with_topic(partitions: int, factor: int = 3) -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=partitions, replication_factor=factor)
    return driver


def test_who_dies_while_nobody_reigns_is_replaced_by_the_next_controller() -> None:
    driver = with_topic(partitions=3)
    led = [state.leader == 1 for state in driver.states()]
    assert any(led)
    driver.kill_broker(1)
    driver.take_over()
    assert all(state.leader in (2, 3) for state in driver.states())
    assert [state.leader_epoch for state in driver.states()] == [int(was_led) for was_led in led]
    assert all(1 not in state.isr_ids for state in driver.states())


def test_a_partition_that_a_controller_finds_without_a_leader_is_led_once_its_member_is_back() -> (
    None
):
    driver = with_topic(partitions=1, factor=1)
    (holder,) = driver.state().replicas
    epoch = driver.brokers[holder].broker_epoch
    driver.kill_broker(holder)
    driver.watch()
    assert driver.state().leader == NO_LEADER
    driver.start_broker(holder, whole_since=epoch)
    driver.take_over()
    assert (driver.state().leader, driver.state().leader_epoch) == (holder, 2)


def test_a_broker_that_was_down_is_told_at_its_start_what_changed_meanwhile() -> None:
    driver = with_topic(partitions=3)
    epoch = driver.brokers[2].broker_epoch
    driver.kill_broker(2)
    driver.watch()
    driver.sent.clear()
    driver.start_broker(2, whole_since=epoch)
    driver.watch()
    first = next(command for told, command in driver.sent if told == 2)
    assert isinstance(first, LeaderAndIsrCommand)
    assert first.full_state
    assert [p.state for p in first.partitions] == driver.states()
    assert first.broker_epoch == driver.brokers[2].broker_epoch
