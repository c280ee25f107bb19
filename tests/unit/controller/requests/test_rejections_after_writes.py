"""A request that has begun to write when it is rejected may have been carried out; its error says
so. One that is rejected at once was not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.errors import ErrorCode
from unit.controller.driver import Driver, cluster

CHANGES: dict[str, Callable[[Driver], int]] = {
    "creation": lambda driver: driver.create_topic("t", 1, 1, operation_id="op"),
    "added partitions": lambda driver: driver.add_partitions(5),
    "removed partitions": lambda driver: driver.remove_partitions(1),
    "configuration": lambda driver: driver.alter_config({"min_insync_replicas": "2"}),
}


def outcome(driver: Driver, request: int) -> tuple[ErrorCode, bool]:
    error = driver.replies[request].error
    assert error is not None
    return error.code, error.outcome_unknown


@pytest.mark.parametrize("change", CHANGES)
def test_only_a_request_that_has_begun_before_a_deletion_is_in_doubt(change: str) -> None:
    driver = cluster(1, 2, 3)
    for broker in driver.brokers.values():
        broker.mute = True
    if change != "creation":
        driver.create_topic("t", 3, 3)
    waiting = CHANGES[change](driver)
    assert waiting not in driver.replies, "it waits for brokers"
    driver.delete_topic()
    late = CHANGES[change](driver)
    assert outcome(driver, waiting) == (ErrorCode.TOPIC_BEING_DELETED, True)
    assert outcome(driver, late) == (ErrorCode.TOPIC_BEING_DELETED, False)
