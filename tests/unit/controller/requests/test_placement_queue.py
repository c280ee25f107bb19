"""Replicas for the partitions of large requests are chosen off the event loop."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog_controller.policies import replica_limit
from tidelog_controller.requests import placement_queue
from tidelog_controller.requests.placement_queue import MAX_PLACED_AT_ONCE
from tidelog_controller.state.admin_answers import PartitionsAnswer
from unit.controller.driver import KEYS, Driver

MANY = MAX_PLACED_AT_ONCE + 1


@pytest.fixture
def driver() -> Driver:
    made = Driver()
    for broker_id in (1, 2, 3):
        made.start_broker(broker_id)
    made.load()
    return made


def _planned(driver: Driver, request: int) -> PartitionsAnswer:
    reply = driver.replies[request]
    assert reply.error is None
    assert isinstance(reply.answer, PartitionsAnswer)
    return reply.answer


@pytest.mark.parametrize(("partitions", "searches"), [(MAX_PLACED_AT_ONCE, 0), (MANY, 1)])
def test_a_large_request_is_placed_off_the_loop(
    driver: Driver, partitions: int, searches: int
) -> None:
    request = driver.create_topic(partitions=partitions, dry_run=True)
    assert len(driver.searches) == searches
    answer = _planned(driver, request)
    assert [len(set(replicas)) for replicas in answer.assignment] == [3] * partitions
    assert KEYS.topic("t") not in driver.store.items


def test_placement_for_an_addition_matches_the_resulting_replicas(driver: Driver) -> None:
    driver.create_topic(partitions=3)
    planned = _planned(driver, driver.add_partitions(3 + MANY, dry_run=True)).assignment
    assert len(driver.searches) == 1
    driver.add_partitions(3 + MANY)
    assert [driver.state(3 + number).replicas for number in range(MANY)] == list(planned)


def test_a_creation_that_might_be_too_large_is_checked_with_its_placement(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_limit, "MAX_REPLICAS_PER_BROKER", MAX_PLACED_AT_ONCE)
    request = driver.create_topic(partitions=MANY)
    assert len(driver.searches) == 1
    error = driver.replies[request].error
    assert error is not None
    assert error.code is ErrorCode.NOT_ENOUGH_BROKERS
    allowed = driver.create_topic("u", partitions=MANY, replication_factor=1)
    assert (len(driver.searches), driver.replies[allowed].error) == (2, None)


def test_the_number_of_requests_waiting_for_placement_is_limited(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement_queue, "MAX_REQUESTS_WAITING", 0)
    error = driver.replies[driver.create_topic(partitions=MANY, dry_run=True)].error
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_large_invalid_request_is_rejected_before_placement(driver: Driver) -> None:
    error = driver.replies[driver.create_topic(partitions=MANY, replication_factor=4)].error
    assert error is not None
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert driver.searches == []
