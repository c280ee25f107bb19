"""Internal topics of the cluster: the controller creates them, and users cannot change them."""

from __future__ import annotations

from tidelog.errors import ErrorCode
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC
from tidelog_controller.policies.internal_topics import state_changes_topic
from tidelog_controller.state.admin_requests import RemovedBrokers
from tidelog_runtime.metadata.schema import decode_topic
from unit.controller.driver import KEYS, Driver, cluster


def _keeping(*brokers: int) -> Driver:
    return cluster(*brokers, internal_topics=[state_changes_topic(3)])


def _exists(driver: Driver) -> bool:
    return KEYS.topic(STATE_CHANGES_TOPIC) in driver.store.items


def test_an_internal_topic_is_created_once_enough_brokers_run() -> None:
    driver = _keeping(1, 2)
    assert not _exists(driver)
    driver.start_broker(3)
    driver.watch()
    entry = decode_topic(driver.store.items[KEYS.topic(STATE_CHANGES_TOPIC)].value)
    assert (entry.partitions, entry.replication_factor) == (3, 3)
    assert entry.config == {"retention_ms": "604800000"}
    assert len(driver.states(STATE_CHANGES_TOPIC)) == 3


def test_the_next_controller_does_not_create_it_again() -> None:
    driver = _keeping(1, 2, 3)
    entry = driver.store.items[KEYS.topic(STATE_CHANGES_TOPIC)]
    driver.take_over()
    assert driver.store.items[KEYS.topic(STATE_CHANGES_TOPIC)] == entry


def test_a_broker_that_takes_no_new_replicas_does_not_count_for_one() -> None:
    driver = _keeping(1, 2)
    driver.begin_operation(RemovedBrokers((2,)), "op")
    driver.start_broker(3)
    driver.watch()
    assert not _exists(driver)


def test_without_configured_internal_topics_none_is_created() -> None:
    assert not _exists(cluster(1, 2, 3))


def test_users_cannot_create_a_topic_with_an_internal_name() -> None:
    driver = cluster(1, 2, 3)
    request = driver.create_topic("__mine")
    error = driver.replies[request].error
    assert error is not None
    assert error.code is ErrorCode.INVALID_TOPIC_NAME
    assert "choose another name" in error.message


def test_users_cannot_delete_an_internal_topic() -> None:
    driver = _keeping(1, 2, 3)
    request = driver.delete_topic(STATE_CHANGES_TOPIC)
    error = driver.replies[request].error
    assert error is not None
    assert "state_changes_topic = false" in error.message
    assert _exists(driver)


def test_a_topic_that_is_no_longer_internal_can_be_deleted() -> None:
    driver = _keeping(1, 2, 3)
    driver.internal_topics = []
    driver.take_over()
    request = driver.delete_topic(STATE_CHANGES_TOPIC)
    assert driver.replies[request].error is None
    assert not _exists(driver)
