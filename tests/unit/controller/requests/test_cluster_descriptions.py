"""Descriptions of topics and brokers for administrators."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog_controller.state.admin_answers import BrokersAnswer, BrokerView, TopicsAnswer
from tidelog_controller.state.admin_requests import (
    CheckRestart,
    DescribeBrokers,
    DescribeRecovery,
    DescribeTopics,
    RemovedBrokers,
    SetMaintenance,
)
from tidelog_controller.state.events import AdminRequest, DeleteTopic
from unit.controller.driver import KEYS, Driver, cluster


def topics(
    driver: Driver,
    *names: str,
    internal: bool = False,
    heads: bool = False,
    size: int = 0,
    token: str = "",
) -> TopicsAnswer:
    answer = driver.ask(DescribeTopics(0, names, internal, heads, size, token)).answer
    assert isinstance(answer, TopicsAnswer)
    return answer


def broker(driver: Driver, broker_id: int) -> BrokerView:
    answer = driver.ask(DescribeBrokers(0, (broker_id,))).answer
    assert isinstance(answer, BrokersAnswer)
    (view,) = answer.brokers
    return view


def pages(driver: Driver, *, heads: bool, size: int) -> list[list[tuple[str, list[int]]]]:
    found, token = [], ""
    while True:
        answer = topics(driver, heads=heads, size=size, token=token)
        found.append([(t.name, [number for number, _ in t.partitions]) for t in answer.topics])
        token = answer.next_page_token
        if not token:
            return found


def test_a_topic_is_described_with_its_configuration_and_the_revision_of_its_key() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(config={"segment_ms": "5000"})
    (view,) = topics(driver, "t").topics
    assert view.revision == driver.store.items[KEYS.topic("t")].mod_revision
    keys = {key.key: key for key in view.config}
    assert (keys["segment_ms"].value, keys["segment_ms"].is_set) == ("5000", True)
    assert keys["segment_ms"].default_value == "604800000"
    assert (keys["retention_bytes"].value, keys["retention_bytes"].is_set) == ("-1", False)
    assert all(key.description for key in view.config)


def test_pages_count_partitions_and_a_topic_continues_on_the_next_page() -> None:
    driver = cluster(1)
    driver.create_topic("a", 3, 1)
    driver.create_topic("b", 2, 1)
    assert pages(driver, heads=False, size=2) == [
        [("a", [0, 1])],
        [("a", [2]), ("b", [0])],
        [("b", [1])],
    ]


def test_pages_without_partitions_count_topics() -> None:
    driver = cluster(1)
    for name in ("a", "b", "c"):
        driver.create_topic(name, 1, 1)
    assert pages(driver, heads=True, size=2) == [[("a", []), ("b", [])], [("c", [])]]


def test_an_unknown_topic_is_rejected() -> None:
    error = cluster(1).ask(DescribeTopics(0, ("u",), False, False, 0, "")).error
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_being_removed_are_counted_and_not_listed() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=4)
    driver.brokers[3].mute = True
    driver.remove_partitions(2)
    (view,) = topics(driver, "t").topics
    assert (len(view.partitions), view.partitions_being_removed) == (2, 2)


def test_a_broker_is_described_with_its_share() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=3, replication_factor=3)
    view = broker(driver, 1)
    assert (view.replicas, view.leaders, view.preferred_leaders, view.out_of_sync) == (3, 1, 1, 0)
    assert view.registration is not None
    assert view.registration.address == "10.0.0.1:7500"


def test_a_broker_that_left_is_described_as_long_as_it_holds_replicas() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic()
    driver.kill_broker(2)
    driver.watch()
    view = broker(driver, 2)
    assert (view.registration, view.replicas, view.out_of_sync) == (None, 3, 3)
    assert view.departure is not None
    assert view.departure.address == "10.0.0.2:7500"


def test_marks_of_a_broker_are_described() -> None:
    driver = cluster(1, 2, 3)
    driver.ask(SetMaintenance(0, (2,), True, False, 5_000))
    driver.begin_operation(RemovedBrokers((3,)), "op")
    assert (broker(driver, 2).maintenance, broker(driver, 2).removed) == (True, False)
    assert (broker(driver, 3).maintenance, broker(driver, 3).removed) == (False, True)


def test_an_unknown_broker_is_rejected() -> None:
    error = cluster(1).ask(DescribeBrokers(0, (9,))).error
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_BROKER


def rejected(request: AdminRequest) -> str:
    """The message of the rejection with INVALID_REQUEST."""
    driver = cluster(1)
    driver.create_topic(partitions=1, replication_factor=1)
    error = driver.ask(request).error
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    return error.message


@pytest.mark.parametrize("timeout_ms", [-1, 300_001])
def test_an_impossible_timeout_is_rejected_and_not_replaced_by_another(timeout_ms: int) -> None:
    for request in (
        DeleteTopic(0, "t", "", timeout_ms),
        DescribeRecovery(0, "t", (), timeout_ms, 0, ""),
        SetMaintenance(0, (1,), True, False, timeout_ms),
    ):
        said = rejected(request)
        assert said == f"a timeout of {timeout_ms} ms is invalid; use 1 to 300000 ms"


@pytest.mark.parametrize(
    "request_",
    [
        DescribeTopics(0, (), False, False, -1, ""),
        CheckRestart(0, 1, -1, ""),
        DescribeRecovery(0, "t", (), 1, -1, ""),
    ],
)
def test_a_negative_page_size_is_rejected(request_: AdminRequest) -> None:
    assert rejected(request_).startswith("a page size of -1 is invalid; use 1 to 1000")
