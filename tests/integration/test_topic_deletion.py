"""Deleted topics disappear from every disk, and a new topic of the same name has none of their
data."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.topics import (
    create_topic,
    new_name,
    read_values,
    until_in_sync,
    until_led_by_another,
    write,
)
from integration.waiting import until, until_true
from integration.wire_client import WireClient, assert_rejected, wire_batch
from tidelog.client import Admin, Consumer
from tidelog.errors import UnknownTopicIdError
from tidelog.model import TopicPartition
from tidelog.v1 import errors_pb2
from tidelog_runtime.local.cluster import LocalCluster

TIMEOUT_MS = 20_000


def directories(cluster: LocalCluster, broker_id: int, kind: str, topic: str) -> list[Path]:
    """`kind`: replicas, or strays, which were set aside."""
    return sorted((cluster.broker_data_dir(broker_id) / kind).glob(f"{topic}-*"))


async def delete(cluster: LocalCluster, topic: str) -> tuple[int, ...]:
    async with Admin(cluster.bootstrap) as admin:
        return await admin.delete_topic(topic)


async def test_a_deleted_topic_is_gone_from_every_disk(cluster: LocalCluster) -> None:
    topic = new_name("sea")
    await create_topic(cluster, topic, 3)
    await write(cluster, topic, [b"calm"] * 100)
    had = [len(directories(cluster, b, "replicas", topic)) for b in cluster.broker_ids]

    pending = await delete(cluster, topic)

    assert had == [3, 3, 3]
    assert pending == ()
    await until_true(
        lambda: (
            not any(
                directories(cluster, b, kind, topic)
                for b in cluster.broker_ids
                for kind in ("replicas", "strays")
            )
        ),
        f"no broker has a directory of {topic}",
    )


async def test_a_deleted_topic_is_unknown_to_every_broker(cluster: LocalCluster) -> None:
    topic = new_name("sea")
    await create_topic(cluster, topic)
    await delete(cluster, topic)

    for broker_id in cluster.broker_ids:
        async with WireClient(cluster.broker_address(broker_id)) as client:

            async def check(client: WireClient = client) -> bool:
                return (await client.metadata(topic)).HasField("error")

            await until(check, f"broker {broker_id} knows that {topic} is gone")
            result = await client.produce(topic, 0, wire_batch(b"calm"))
        assert_rejected(
            result.error,
            errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
            "does not exist",
            "create it first",
        )


@pytest.mark.rule("returning-broker-drops-replicas")
async def test_a_broker_that_was_away_sets_the_deleted_replica_aside(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    await create_topic(cluster, topic)
    await write(cluster, topic, [b"calm"])
    away = 3

    await cluster.kill(away)
    await delete(cluster, topic)
    left_behind = directories(cluster, away, "replicas", topic)
    cluster.start_broker(away)
    await cluster.ready()

    assert len(left_behind) == 1
    assert directories(cluster, away, "replicas", topic) == []
    [aside] = directories(cluster, away, "strays", topic)
    assert aside.name.startswith(left_behind[0].name + "@")
    assert any(path.suffix == ".log" and path.stat().st_size for path in aside.iterdir())


async def test_a_topic_of_the_same_name_has_no_data_of_the_previous_one(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    previous = await create_topic(cluster, topic, 2)
    await write(cluster, topic, [b"of the former sea"] * 100)

    await delete(cluster, topic)
    present = await create_topic(cluster, topic, 2)
    async with Consumer(cluster.bootstrap) as consumer:
        ends = await consumer.end_offsets([TopicPartition(topic, p) for p in range(2)])
    await write(cluster, topic, [b"of this sea"])

    assert present.topic_id != previous.topic_id
    assert set(ends.values()) == {0}
    assert await read_values(cluster, topic) == [b"of this sea"]


async def test_a_consumer_of_the_previous_topic_reads_the_new_one_after_a_seek(
    cluster: LocalCluster,
) -> None:
    """The previous topic had an election, and so a leader epoch that the new one has not
    reached."""
    topic = new_name("sea")
    previous = await create_topic(cluster, topic)
    leader = previous.partitions[0].leader
    await cluster.kill(leader)
    elected = await until_led_by_another(cluster, topic, previous.partitions[0])
    cluster.start_broker(leader)
    await cluster.ready()
    await write(cluster, topic, [b"of the former sea"])

    async with Consumer(cluster.bootstrap) as consumer:
        await consumer.assign_topic(topic)
        (read,) = await consumer.poll(TIMEOUT_MS)
        await delete(cluster, topic)
        present = await create_topic(cluster, topic)
        await write(cluster, topic, [b"of this sea"])
        with pytest.raises(UnknownTopicIdError, match="deleted and created again"):
            await consumer.poll(TIMEOUT_MS)
        await consumer.seek_to_beginning()
        (again,) = await consumer.poll(TIMEOUT_MS)

    assert read.leader_epoch == elected.leader_epoch > present.partitions[0].leader_epoch
    assert again.value == b"of this sea"


@pytest.mark.rule("topic-ids-separate-recreated-topics")
async def test_a_broker_that_missed_deletion_and_creation_follows_the_current_topic(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    previous = await create_topic(cluster, topic)
    await write(cluster, topic, [b"of the former sea"] * 100)
    away = 2

    await cluster.kill(away)
    await delete(cluster, topic)
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(topic, 1, 2)
    await write(cluster, topic, [b"of this sea"])
    cluster.start_broker(away)
    await cluster.ready()
    present = await until_in_sync(cluster, topic)
    async with WireClient(cluster.broker_address(away)) as returned:
        result = await returned.produce(
            topic, 0, wire_batch(b"of the former sea"), topic_id=previous.topic_id
        )

    assert present.topic_id != previous.topic_id
    assert result.error.code in (
        errors_pb2.ERROR_CODE_NOT_LEADER,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID,
    )
    assert directories(cluster, away, "replicas", f"{topic}-0.{previous.topic_id}") == []
    assert await read_values(cluster, topic) == [b"of this sea"]
