"""Invalid topics are rejected with a reason, and nothing is created."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from integration.topics import create_topic, describe, new_name, read_values, write
from integration.wire_client import WireClient, assert_rejected
from tidelog.client import Admin
from tidelog.v1 import admin_pb2, errors_pb2
from tidelog_runtime.local.cluster import LocalCluster

TIMEOUT_MS = 10_000
CHARACTERS = "1 to 200 characters out of a-z, A-Z, 0-9, '.', '_' and '-'"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def controller(cluster: LocalCluster) -> AsyncIterator[WireClient]:
    active = await cluster.active_controller()
    assert active is not None
    await create_topic(cluster, "sea")
    async with WireClient(cluster.controller_address(active)) as client:
        yield client


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def unharmed(cluster: LocalCluster) -> AsyncIterator[None]:
    """After each rejection the processes and the topics are unchanged."""
    pids = [process.pid for process in cluster.processes()]
    async with Admin(cluster.bootstrap) as admin:
        before = await admin.list_topics()
        yield
        after = await admin.list_topics()
    assert [process.pid for process in cluster.processes()] == pids
    assert {t.name: t.topic_id for t in after} == {t.name: t.topic_id for t in before}


class BadTopic(NamedTuple):
    request: admin_pb2.CreateTopicRequest
    code: errors_pb2.ErrorCode.ValueType
    phrases: tuple[str, ...]


def request(
    topic: str = "lake",
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    config: dict[str, str] | None = None,
) -> admin_pb2.CreateTopicRequest:
    return admin_pb2.CreateTopicRequest(
        topic=topic,
        partitions=partitions,
        replication_factor=replication_factor,
        config=config or {},
        timeout_ms=TIMEOUT_MS,
    )


def bad_name(topic: str, *phrases: str) -> BadTopic:
    return BadTopic(
        request(topic), errors_pb2.ERROR_CODE_INVALID_TOPIC_NAME, (*phrases, CHARACTERS)
    )


def bad_factor(replication_factor: int) -> BadTopic:
    return BadTopic(
        request(replication_factor=replication_factor),
        errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR,
        (f"replication factor {replication_factor}", "3 brokers are running", "request 1 to 3"),
    )


def bad_count(partitions: int) -> BadTopic:
    return BadTopic(
        request(partitions=partitions),
        errors_pb2.ERROR_CODE_INVALID_PARTITION_COUNT,
        (f"{partitions} partitions are requested", "a topic has 1 to 100000"),
    )


def bad_config(config: dict[str, str], *phrases: str) -> BadTopic:
    return BadTopic(request(config=config), errors_pb2.ERROR_CODE_INVALID_CONFIG, phrases)


BAD_TOPICS = {
    "empty name": bad_name("", "is empty"),
    "name too long": bad_name("x" * 201, "has 201 characters"),
    "slash": bad_name("sea/calm", "contains '/'"),
    "space": bad_name("calm sea", "contains ' '"),
    "not ASCII": bad_name("größe", "contains 'ö'"),
    "line break": bad_name("sea\n", "contains '\\n'"),
    "dot": bad_name(".", "would be a path"),
    "two dots": bad_name("..", "would be a path"),
    "name in use": BadTopic(
        request("sea"),
        errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS,
        ("a topic named sea exists", "choose another name"),
    ),
    "more replicas than brokers": bad_factor(4),
    "no replicas": bad_factor(0),
    "fewer than no replicas": bad_factor(-1),
    "zero partitions": bad_count(0),
    "fewer than zero partitions": bad_count(-1),
    "too many partitions": bad_count(100_001),
    "unknown key, nearly right": bad_config(
        {"retention_mss": "1"}, "'retention_mss' does not exist", "did you mean retention_ms?"
    ),
    "unknown key": bad_config({"tide": "1"}, "'tide' does not exist", "known keys: durability, "),
    "value below its range": bad_config(
        {"segment_bytes": "1"}, "segment_bytes='1' is not valid", "greater than or equal to 65536"
    ),
    "value above its range": bad_config(
        {"max_batch_bytes": str(1 << 40)}, "is not valid", "less than or equal to 16777216"
    ),
    "value that is no number": bad_config(
        {"retention_ms": "a week"}, "retention_ms='a week' is not valid", "valid integer"
    ),
    "min ISR that no write could meet": bad_config(
        {"min_insync_replicas": "2"}, "the replication factor 1", "set it to at most 1"
    ),
}


@pytest.mark.parametrize("bad", BAD_TOPICS.values(), ids=BAD_TOPICS.keys())
async def test_an_invalid_topic_is_rejected(controller: WireClient, bad: BadTopic) -> None:
    answer = await controller.admin.CreateTopic(bad.request)

    assert_rejected(answer.error, bad.code, *bad.phrases)
    assert answer.topic_id == ""


async def test_a_rejected_creation_leaves_the_existing_topic_unchanged(
    cluster: LocalCluster, controller: WireClient
) -> None:
    value = uuid.uuid4().bytes
    await write(cluster, "sea", [value])

    await controller.admin.CreateTopic(request("sea", partitions=5))

    assert len((await describe(cluster, "sea")).partitions) == 1
    assert (await read_values(cluster, "sea"))[-1] == value


async def test_a_valid_topic_is_not_created_by_a_dry_run(controller: WireClient) -> None:
    checked = request("lake")
    checked.dry_run = True

    assert not (await controller.admin.CreateTopic(checked)).HasField("error")


async def test_an_unknown_topic_cannot_be_deleted(controller: WireClient) -> None:
    answer = await controller.admin.DeleteTopic(
        admin_pb2.DeleteTopicRequest(topic="no-such-sea", timeout_ms=TIMEOUT_MS)
    )

    assert_rejected(
        answer.error,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        "'no-such-sea' does not exist",
        "can be listed",
    )


async def test_a_topic_with_another_id_is_not_deleted(controller: WireClient) -> None:
    answer = await controller.admin.DeleteTopic(
        admin_pb2.DeleteTopicRequest(topic="sea", topic_id="former", timeout_ms=TIMEOUT_MS)
    )

    assert_rejected(answer.error, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID, "not former")


async def test_a_controller_that_is_not_active_names_the_one_that_is(
    cluster: LocalCluster,
) -> None:
    active = await cluster.active_controller()
    [other] = {1, 2} - {active}
    async with WireClient(cluster.controller_address(other)) as standby:
        answer = await standby.admin.CreateTopic(request(new_name("lake")))

    assert active is not None
    assert_rejected(
        answer.error,
        errors_pb2.ERROR_CODE_NOT_CONTROLLER,
        f"controller {active} at {cluster.controller_address(active)}",
    )
