"""Creations that lack brokers, and creations that are requested again half-way."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.errors import ErrorCode
from tidelog_controller.state.admin_requests import RemovedBrokers
from unit.controller.driver import Driver, cluster
from unit.controller.operated import code_of


def test_a_factor_that_only_removed_brokers_could_carry_names_them() -> None:
    driver = cluster(1, 2, 3)
    driver.begin_operation(RemovedBrokers((3,)), "shrink")
    error = driver.replies[driver.create_topic(replication_factor=3)].error
    assert error is not None
    assert "2 brokers take new replicas, since [3] were removed" in error.message


def half_way() -> Driver:
    """A broker left while a topic was created, and the request timed out."""
    driver = cluster(1, 2)
    driver.hold_transactions = True
    request = driver.create_topic(partitions=2, replication_factor=2, operation_id="first")
    driver.kill_broker(2)
    driver.watch()
    driver.release()
    driver.pass_time(5_000)
    assert code_of(driver, request) is ErrorCode.REQUEST_TIMED_OUT
    assert driver.states() == []
    return driver


@pytest.mark.parametrize("takes_over", [False, True])
@pytest.mark.parametrize("operation_id", ["", "second"])
def test_a_half_way_creation_continues_for_a_client_that_requests_the_same(
    operation_id: str, takes_over: bool
) -> None:
    driver = half_way()
    if takes_over:
        driver.take_over()
    again = driver.create_topic(partitions=2, replication_factor=2, operation_id=operation_id)
    assert again not in driver.replies
    driver.start_broker(2)
    driver.watch()
    assert driver.replies[again].error is None
    assert {driver.replies[again].topic_id} == {state.topic_id for state in driver.states()}


@pytest.mark.parametrize(
    "other",
    [
        {"replication_factor": 1},
        {"partitions": 3},
        {"config": {"retention_ms": "9"}},
        {"assignment": ((1, 2), (2, 1))},
    ],
)
def test_a_different_creation_of_a_half_way_topic_is_rejected_with_what_it_lacks(
    other: dict[str, Any],
) -> None:
    driver = half_way()
    request = driver.create_topic(**{"partitions": 2, "replication_factor": 2, **other})
    error = driver.replies[request].error
    assert error is not None
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "2 of its partitions have no replicas yet" in error.message
    assert "by operation id first, delete the topic" in error.message


def test_a_growing_topic_is_no_half_way_creation() -> None:
    driver = cluster(1, 2)
    driver.create_topic(partitions=2, replication_factor=2)
    driver.hold_transactions = True
    driver.add_partitions(3)
    driver.kill_broker(2)
    driver.watch()
    driver.release()
    request = driver.create_topic(partitions=3, replication_factor=2)
    error = driver.replies[request].error
    assert error is not None
    assert "exists; choose another name" in error.message
