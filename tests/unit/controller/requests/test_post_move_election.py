"""A balancing operation ends with the leaders that its plan shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tidelog.model import TopicPartition
from tidelog_controller.requests import post_move_election
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    RemovedBrokers,
    SetMaintenance,
)
from tidelog_runtime.metadata.operations import OperationState
from tidelog_runtime.metadata.schema import decode_leader_and_isr, encode_leader_and_isr
from tidelog_runtime.metadata.store import Delete, Transaction
from unit.controller.driver import KEYS, Driver
from unit.controller.operated import by_hand, catch_up, state_of, with_topic


def leaders(driver: Driver) -> list[int]:
    return [state.leader for state in driver.states()]


def preferred(driver: Driver) -> list[int]:
    return [state.replicas[0] for state in driver.states()]


def grown(driver: Driver, operation_id: str = "op") -> None:
    driver.begin_operation(AddedBrokers((4,)), operation_id)
    catch_up(driver)
    assert state_of(driver, operation_id) is OperationState.DONE


def test_an_added_broker_leads_its_share_when_the_operation_is_done() -> None:
    driver = with_topic(partitions=12)
    grown(driver)
    counts = Counter(leaders(driver))
    assert counts == {1: 3, 2: 3, 3: 3, 4: 3}
    assert leaders(driver) == preferred(driver)


def test_partitions_of_a_removed_broker_are_led_by_their_preferred_replicas() -> None:
    driver = with_topic(partitions=12)
    grown(driver)
    driver.begin_operation(RemovedBrokers((3,)), "shrink")
    catch_up(driver)
    assert leaders(driver) == preferred(driver)
    assert 3 not in leaders(driver)


def test_manual_moves_keep_the_leader_where_possible() -> None:
    driver = with_topic(partitions=1)
    leader = driver.state(0).leader
    driver.begin_operation(by_hand((0, (4, leader))), "op")
    catch_up(driver)
    assert state_of(driver) is OperationState.DONE
    assert (driver.state(0).leader, driver.state(0).replicas[0]) == (leader, 4)


def test_a_cancelled_operation_elects_no_leader() -> None:
    driver = with_topic(partitions=12)
    before = leaders(driver)
    driver.begin_operation(AddedBrokers((4,)), "op")
    driver.cancel_operation("op")
    assert state_of(driver) is OperationState.CANCELLED
    assert leaders(driver) == before


def test_a_broker_in_maintenance_is_not_elected_then_or_when_maintenance_ends() -> None:
    driver = with_topic(partitions=12)
    driver.ask(SetMaintenance(0, (4,), True, False, 5_000))
    grown(driver)
    assert 4 not in leaders(driver)
    driver.ask(SetMaintenance(0, (4,), False, False, 5_000))
    assert 4 not in leaders(driver)


def is_election(driver: Driver, transaction: Transaction) -> bool:
    """Whether the transaction elects a leader of a partition that is not being moved."""
    changes = [c for c in transaction.changes if c.key.endswith("/leaderAndISR")]
    if not changes or isinstance(changes[0], Delete):
        return False
    before = decode_leader_and_isr(driver.store.items[changes[0].key].value)
    after = decode_leader_and_isr(changes[0].value)
    return before.moving is after.moving is None and before.leader != after.leader


@pytest.mark.parametrize("elections", [1, 2])
def test_another_controller_makes_the_remaining_elections(
    elections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_move_election, "MAX_ELECTED_AT_ONCE", 1)
    driver = with_topic(partitions=12)
    driver.begin_operation(AddedBrokers((4,)), "op")
    left = [elections]

    def stop(transaction: Transaction) -> None:
        left[0] -= is_election(driver, transaction)
        driver.hold_transactions = left[0] == 0

    driver.before_transaction = stop
    catch_up(driver)
    driver.before_transaction = None
    assert leaders(driver) != preferred(driver)
    assert state_of(driver) is OperationState.RUNNING
    driver.take_over()
    assert leaders(driver) == preferred(driver)
    assert state_of(driver) is OperationState.DONE


def test_the_next_controller_ignores_the_leaders_of_an_ended_operation() -> None:
    driver = with_topic(partitions=12)
    grown(driver)
    name = TopicPartition("t", 0)
    other = driver.state(0).replicas[1]
    state = driver.state(0)
    key = KEYS.leader_and_isr(name)
    led = replace(state, leader=other, leader_epoch=state.leader_epoch + 1)
    driver.store.put(key, encode_leader_and_isr(led))
    driver.watch()
    driver.take_over()
    assert driver.state(0).leader == other


def test_elections_beyond_the_limit_follow_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_move_election, "MAX_ELECTED_AT_ONCE", 1)
    driver = with_topic(partitions=12)
    grown(driver)
    assert leaders(driver) == preferred(driver)
