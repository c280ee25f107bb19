"""Controlled shutdown of a broker: its leaderships move and it leaves every ISR. Nothing that the
broker may still do returns it to an ISR (rule `stopping-broker-does-not-rejoin`).
"""

from __future__ import annotations

import pytest

from tidelog.model import NO_LEADER
from tidelog_runtime.metadata.schema import LeaderAndIsr
from unit.controller.driver import KEYS, Driver, cluster


def stop(driver: Driver, *broker_ids: int) -> None:
    """The brokers rewrite their registrations; the broker epochs stay."""
    for broker_id in broker_ids:
        held = driver.store.items[KEYS.broker(broker_id)]
        driver.store.put(held.key, held.value.replace(b'"running"', b'"stopping"'))
    driver.watch()


def with_topic(
    partitions: int = 3, factor: int = 3, config: dict[str, str] | None = None
) -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=partitions, replication_factor=factor, config=config)
    driver.transcript.clear()
    return driver


def led_or_in_sync(state: LeaderAndIsr, broker_id: int) -> bool:
    return state.leader == broker_id or broker_id in state.isr_ids


@pytest.mark.rule("controlled-shutdown-leaves-every-isr")
def test_a_stopping_broker_loses_its_leaderships_and_leaves_every_isr() -> None:
    driver = with_topic()
    stop(driver, 2)
    assert not any(led_or_in_sync(state, 2) for state in driver.states())
    assert all(state.leader != NO_LEADER for state in driver.states())


def test_a_stopping_broker_is_informed_of_every_leadership_that_it_lost() -> None:
    driver = with_topic()
    stop(driver, 2)
    assert "broker 2 lead t/0:3" in driver.transcript


def test_only_partitions_that_it_led_get_a_new_epoch() -> None:
    driver = with_topic()
    stop(driver, 2)
    assert [state.leader_epoch for state in driver.states()] == [1, 0, 0]


def test_the_end_of_its_registration_changes_nothing_more() -> None:
    driver = with_topic()
    stop(driver, 2)
    before = driver.states()
    driver.kill_broker(2)
    driver.watch()
    assert driver.states() == before


def test_below_min_isr_the_stopping_broker_stays_eligible() -> None:
    driver = with_topic(partitions=1, factor=2)
    leader, follower = driver.state().replicas
    stop(driver, leader)
    state = driver.state()
    assert (state.leader, sorted(state.isr_ids)) == (follower, [follower])
    assert [member.broker_id for member in state.eligible] == [leader]


def test_the_only_replica_leads_until_its_broker_is_gone() -> None:
    driver = with_topic(partitions=3, factor=1)
    before = driver.states()
    stop(driver, 2)
    assert driver.states() == before
    driver.kill_broker(2)
    driver.watch()
    assert [state.leader for state in driver.states()].count(NO_LEADER) == 1


def test_a_replica_that_returns_in_the_meantime_takes_over_from_the_last() -> None:
    driver = with_topic(partitions=1, factor=2)
    leader, follower = driver.state().replicas
    epoch = driver.brokers[follower].broker_epoch
    driver.kill_broker(follower)
    driver.watch()
    stop(driver, leader)
    assert driver.state().leader == leader
    driver.start_broker(follower, whole_since=epoch)
    driver.watch()
    assert driver.state().leader == follower


def test_when_all_brokers_stop_at_once_every_partition_keeps_a_leader_to_the_end() -> None:
    driver = with_topic()
    stop(driver, 1, 2, 3)
    assert all(state.isr_ids == {state.leader} for state in driver.states())
    for broker_id in (1, 2, 3):
        driver.kill_broker(broker_id)
        driver.watch()
    assert all(state.leader == NO_LEADER for state in driver.states())


def test_after_all_have_stopped_the_last_leader_or_an_eligible_replica_leads_again() -> None:
    driver = with_topic(partitions=1)
    epochs = {b: broker.broker_epoch for b, broker in driver.brokers.items()}
    stop(driver, 1, 2, 3)
    for broker_id in (1, 2, 3):
        driver.kill_broker(broker_id)
    driver.watch()
    first, *_ = [b for b in (1, 2, 3) if b not in driver.state().isr_ids]
    driver.start_broker(first, whole_since=epochs[first])
    driver.watch()
    # Below min ISR nothing was committed without it.
    assert (driver.state().leader, driver.state().unclean_leader_epoch) == (first, -1)


def test_a_new_controller_continues_with_the_remaining_leaderships() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    stop(driver, 2)
    driver.take_over()
    assert not any(led_or_in_sync(state, 2) for state in driver.states())


def test_a_stopping_broker_gets_no_new_replica() -> None:
    driver = with_topic()
    stop(driver, 2)
    driver.create_topic("u", partitions=2, replication_factor=2)
    assert all(2 not in state.replicas for state in driver.states("u"))
