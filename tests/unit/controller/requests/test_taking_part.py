"""Brokers that plans use, and brokers that have only registered."""

from __future__ import annotations

from tidelog.errors import ErrorCode
from tidelog_controller.state.admin_answers import BrokersAnswer
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    DescribeBrokers,
    OtherFactor,
    Rebalancing,
    RemovedBrokers,
)
from unit.controller.driver import KEYS, Driver, cluster
from unit.controller.operated import by_hand, catch_up, code_of, plan_of, with_topic


def targets(driver: Driver, request: int) -> set[int]:
    return {broker_id for move in plan_of(driver, request).moves for broker_id in move.target}


def not_added(driver: Driver) -> list[int]:
    answer = driver.ask(DescribeBrokers(0, ())).answer
    assert isinstance(answer, BrokersAnswer)
    return [broker.broker_id for broker in answer.brokers if broker.not_added]


def test_a_broker_that_has_only_registered_gets_no_moves() -> None:
    driver = with_topic(12)
    for wanted in (Rebalancing(), RemovedBrokers((1,))):
        assert 4 not in targets(driver, driver.begin_operation(wanted, dry_run=True))


def test_adding_one_broker_moves_nothing_to_another_unnamed_one() -> None:
    driver = with_topic(12)
    driver.start_broker(5)
    driver.watch()
    request = driver.begin_operation(AddedBrokers((4,)), dry_run=True)
    assert {4} <= targets(driver, request) <= {1, 2, 3, 4}


def test_new_partitions_are_placed_on_a_broker_that_has_only_registered() -> None:
    driver = with_topic(12)
    driver.create_topic("new", partitions=12, replication_factor=2)
    assert any(4 in state.replicas for state in driver.states("new"))


def test_brokers_with_replicas_take_part() -> None:
    driver = with_topic(12)
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    catch_up(driver)
    assert 4 in targets(driver, driver.begin_operation(Rebalancing(), dry_run=True))


def test_an_added_broker_takes_part_before_it_holds_replicas() -> None:
    driver = with_topic(1)
    driver.begin_operation(AddedBrokers((4,)), "op")
    driver.create_topic("new", partitions=12, replication_factor=2, assignment=((1, 2),) * 12)
    driver.take_over()
    assert 4 in targets(driver, driver.begin_operation(Rebalancing(), dry_run=True))


def test_a_removed_broker_does_not_take_part_even_if_it_was_added() -> None:
    driver = with_topic(12)
    driver.begin_operation(AddedBrokers((4,)), "op")
    catch_up(driver)
    driver.begin_operation(RemovedBrokers((4,)), "out")
    catch_up(driver)
    assert KEYS.broker_addition(4) not in driver.store.items
    assert 4 not in targets(driver, driver.begin_operation(Rebalancing(), dry_run=True))


def test_where_there_are_no_replicas_yet_all_brokers_take_part() -> None:
    driver = cluster(1, 2)
    request = driver.begin_operation(Rebalancing(), "op")
    assert code_of(driver, request) is None


def test_a_factor_that_needs_an_unused_broker_is_rejected_with_a_hint() -> None:
    driver = with_topic()
    request = driver.begin_operation(OtherFactor(("t",), 4), dry_run=True)
    error = driver.replies[request].error
    assert error is not None
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "brokers [4] are running and have not been added" in error.message


def test_a_removal_that_needs_an_unused_broker_is_rejected_with_a_hint() -> None:
    driver = with_topic(factor=3)
    request = driver.begin_operation(RemovedBrokers((1,)), dry_run=True)
    error = driver.replies[request].error
    assert error is not None
    assert error.code is ErrorCode.NOT_ENOUGH_BROKERS
    assert "brokers [4] are running and have not been added" in error.message


def test_brokers_are_described_as_added_or_not() -> None:
    driver = with_topic(12)
    assert not_added(driver) == [4]
    driver.begin_operation(AddedBrokers((4,)), "op")
    assert not_added(driver) == []
