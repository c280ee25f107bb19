"""An operation that balances ends with the leaders that its plan shows."""

from __future__ import annotations

from collections import Counter

import pytest

from tidelog_controller.requests import moved_leaders
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    RemovedBrokers,
    SetMaintenance,
)
from tidelog_runtime.metadata.operations import OperationState
from unit.controller.driver import Driver
from unit.controller.operated import by_hand, catch_up, state_of, with_topic


def leaders(driver: Driver) -> list[int]:
    return [state.leader for state in driver.states()]


def preferred(driver: Driver) -> list[int]:
    return [state.replicas[0] for state in driver.states()]


def grown(driver: Driver, operation_id: str = "op") -> None:
    driver.begin_operation(AddedBrokers((4,)), operation_id)
    catch_up(driver)
    assert state_of(driver, operation_id) is OperationState.DONE


def test_a_broker_that_was_added_leads_its_share_when_the_operation_is_done() -> None:
    driver = with_topic(partitions=12)
    grown(driver)
    counts = Counter(leaders(driver))
    assert counts == {1: 3, 2: 3, 3: 3, 4: 3}
    assert leaders(driver) == preferred(driver)


def test_the_leaders_of_a_removed_brokers_partitions_are_the_preferred_ones() -> None:
    driver = with_topic(partitions=12)
    grown(driver)
    driver.begin_operation(RemovedBrokers((3,)), "shrink")
    catch_up(driver)
    assert leaders(driver) == preferred(driver)
    assert 3 not in leaders(driver)


def test_moves_by_hand_leave_the_leader_where_it_can_stay() -> None:
    driver = with_topic(partitions=1)
    leader = driver.state(0).leader
    driver.begin_operation(by_hand((0, (4, leader))), "op")
    catch_up(driver)
    assert state_of(driver) is OperationState.DONE
    assert (driver.state(0).leader, driver.state(0).replicas[0]) == (leader, 4)


def test_an_operation_that_is_cancelled_elects_nobody() -> None:
    driver = with_topic(partitions=12)
    before = leaders(driver)
    driver.begin_operation(AddedBrokers((4,)), "op")
    driver.cancel_operation("op")
    assert state_of(driver) is OperationState.CANCELLED
    assert leaders(driver) == before


def test_a_broker_in_maintenance_is_not_elected_and_not_when_that_ends_either() -> None:
    driver = with_topic(partitions=12)
    driver.ask(SetMaintenance(0, (4,), True, False, 5_000))
    grown(driver)
    assert 4 not in leaders(driver)
    driver.ask(SetMaintenance(0, (4,), False, False, 5_000))
    assert 4 not in leaders(driver)


def test_more_elections_than_are_made_at_once_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_leaders, "MAX_ELECTED_AT_ONCE", 1)
    driver = with_topic(partitions=12)
    grown(driver)
    assert leaders(driver) == preferred(driver)
