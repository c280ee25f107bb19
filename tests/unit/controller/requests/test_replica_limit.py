"""No request gives a broker more replicas than it may hold."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import MAX_REPLICAS_PER_BROKER, MAX_REPLICAS_PER_REQUEST
from tidelog_controller.policies import replica_limit
from tidelog_controller.policies.replica_limit import check_added, check_count
from tidelog_controller.state.admin_requests import (
    OtherFactor,
    Rebalancing,
    RemovedBrokers,
    RequestedOperation,
)
from unit.controller.driver import Driver
from unit.controller.operated import by_hand, with_topic

LIMIT = 3


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Brokers 1, 2 and 3 hold two replicas each, and 4 none."""
    made = with_topic(3)
    monkeypatch.setattr(replica_limit, "MAX_REPLICAS_PER_BROKER", LIMIT)
    return made


def rejection(driver: Driver, request: int) -> str:
    error = driver.replies[request].error
    assert error is not None
    assert error.code is ErrorCode.NOT_ENOUGH_BROKERS
    return error.message


def test_a_broker_may_hold_as_many_as_the_limit_says() -> None:
    check_added(lambda _: MAX_REPLICAS_PER_BROKER - 2, [(1, 2), (1, 3)])
    with pytest.raises(TidelogError) as rejected:
        check_added(lambda _: MAX_REPLICAS_PER_BROKER - 1, [(1, 2), (1, 3)])
    assert rejected.value.code is ErrorCode.NOT_ENOUGH_BROKERS
    assert "broker 1 holds 49999 replicas and would hold 50001" in rejected.value.message
    assert "a broker holds at most 50000" in rejected.value.message


def test_a_broker_that_holds_too_many_may_give_some_away() -> None:
    check_count(1, MAX_REPLICAS_PER_BROKER + 9, MAX_REPLICAS_PER_BROKER + 8)


def test_a_request_names_all_that_a_broker_may_hold_and_those_that_leave_it() -> None:
    assert MAX_REPLICAS_PER_REQUEST > MAX_REPLICAS_PER_BROKER


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_topic_is_created_where_it_fits(driver: Driver, *, dry_run: bool) -> None:
    too_large = driver.create_topic("large", 8, 1, dry_run=dry_run)
    assert "holds 2 replicas and would hold 4" in rejection(driver, too_large)
    assert "large" not in driver.controller.context.topics
    fits = driver.create_topic("fits", 4, 1, dry_run=dry_run)
    assert driver.replies[fits].error is None


def test_replicas_chosen_by_hand_count_as_well(driver: Driver) -> None:
    request = driver.create_topic("large", 2, 2, assignment=((4, 1), (1, 4)))
    assert "broker 1 holds 2 replicas and would hold 4" in rejection(driver, request)
    request = driver.create_topic("fits", 2, 2, assignment=((4, 1), (2, 4)))
    assert driver.replies[request].error is None


def test_partitions_are_added_where_they_fit(driver: Driver) -> None:
    assert "would hold 5" in rejection(driver, driver.add_partitions(7))
    assert driver.replies[driver.add_partitions(4)].error is None


def test_an_operation_that_would_not_fit_is_rejected(driver: Driver) -> None:
    driver.create_topic("more", 2, 1, assignment=((4,), (4,)))
    wanted: RequestedOperation
    for wanted in (by_hand((0, (4, 1)), (1, (4, 2))), OtherFactor(("t", "more"), 4)):
        message = rejection(driver, driver.begin_operation(wanted, dry_run=True))
        assert "broker 4 holds 2 replicas and would hold" in message or "would hold 5" in message
        assert f"at most {LIMIT}" in message
    for wanted in (by_hand((0, (4, 1))), Rebalancing()):
        assert driver.replies[driver.begin_operation(wanted, dry_run=True)].error is None


def test_brokers_are_not_removed_where_the_others_have_no_room(driver: Driver) -> None:
    request = driver.begin_operation(RemovedBrokers((3, 4)), dry_run=True)
    assert driver.replies[request].error is None
    driver.create_topic("more", 2, 1, assignment=((1,), (3,)))
    assert "would hold 4" in rejection(
        driver, driver.begin_operation(RemovedBrokers((3, 4)), dry_run=True)
    )
