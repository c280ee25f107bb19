"""Helpers for the topics of a running cluster."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from integration.waiting import TIMEOUT_SECONDS, until
from tidelog.client import Admin, Consumer, Producer
from tidelog.client.descriptions import PartitionDescription, TopicDescription
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Record, TopicPartition
from tidelog_runtime.local.cluster import LocalCluster

_numbers = itertools.count(1)


def new_name(what: str) -> str:
    """A topic name that no other test of this run uses."""
    return f"{what}-{next(_numbers)}"


async def describe(cluster: LocalCluster, topic: str) -> TopicDescription:
    async with Admin(cluster.bootstrap) as admin:
        return await admin.describe_topic(topic)


async def partition_of(
    cluster: LocalCluster, topic: str, partition: int = 0
) -> PartitionDescription:
    return (await describe(cluster, topic)).partitions[partition]


async def create_topic(
    cluster: LocalCluster,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 3,
    config: dict[str, str] | None = None,
) -> TopicDescription:
    """Creates a topic; returns once every partition has a leader and is in sync, as every broker
    reports."""
    async with Admin(cluster.bootstrap) as admin:
        created = await admin.create_topic(topic, partitions, replication_factor, config)
    return await until_in_sync(cluster, topic, topic_id=created.topic_id)


async def create_once_registered(cluster: LocalCluster, topic: str) -> TopicDescription:
    """Like `create_topic`, for brokers whose leases may be about to end.

    etcd expires leases some time after it is back, and then the brokers register again."""

    async def create() -> TopicDescription | None:
        try:
            return await create_topic(cluster, topic)
        except TidelogError as error:
            if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                raise
            return None

    created = await until(create, f"{topic} is created")
    assert created is not None
    return created


async def until_in_sync(
    cluster: LocalCluster,
    topic: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
    *,
    topic_id: str = "",
    partitions: int = 1,
) -> TopicDescription:
    """Waits until every ISR is full, as every running broker reports.

    `topic_id`, `partitions`: the expected topic of that name, and its least number of partitions; a
    broker that has not received a change yet reports the previous state."""

    async def check() -> TopicDescription | None:
        described = None
        for broker_id in cluster.broker_ids:
            if not cluster.broker_process(broker_id).running:
                continue
            async with Admin(cluster.broker_address(broker_id)) as admin:
                try:
                    described = await admin.describe_topic(topic)
                except TidelogError:
                    return None  # the broker has not received the topic yet
            # The broker may have the topic without its partitions.
            in_sync = [len(p.isr) == len(p.replicas) for p in described.partitions]
            if len(in_sync) < partitions or not all(in_sync):
                return None
            if topic_id and described.topic_id != topic_id:
                return None
        return described

    found = await until(check, f"every ISR of {topic} is full", timeout_seconds)
    assert found is not None
    return found


async def until_led_by_another(
    cluster: LocalCluster, topic: str, previous: PartitionDescription
) -> PartitionDescription:
    async def check() -> PartitionDescription | None:
        now = await partition_of(cluster, topic, previous.partition)
        return now if now.leader not in (-1, previous.leader) else None

    found = await until(check, f"{topic}/{previous.partition} is led by another broker")
    assert found is not None
    return found


async def until_isr(cluster: LocalCluster, topic: str, isr: set[int], partition: int = 0) -> None:
    async def check() -> bool:
        return set((await partition_of(cluster, topic, partition)).isr) == isr

    await until(check, f"the ISR of {topic}/{partition} is {isr}")


async def write(
    cluster: LocalCluster, topic: str, values: Sequence[bytes], partition: int | None = None
) -> None:
    """Writes with acks=all; raises if a record could not be delivered."""
    async with Producer(cluster.bootstrap, delivery_timeout_ms=20_000) as producer:
        await (await producer.send_many(topic, values, partition=partition))


async def read(
    cluster: LocalCluster, topic: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> list[Record]:
    """Every record that is committed now."""
    async with Consumer(cluster.bootstrap) as consumer:
        partitions = await consumer.partitions_of(topic)
        ends = await consumer.end_offsets(partitions)
        starts = await consumer.beginning_offsets(partitions)
        consumer.assign(partitions)
        records: list[Record] = []

        committed = sum(ends[partition] - starts[partition] for partition in partitions)

        async def check() -> bool:
            if len(records) < committed:
                records.extend(await consumer.poll())
            return len(records) >= committed

        await until(check, f"{topic} is read to its end", timeout_seconds)
    return [r for r in records if r.offset < ends[TopicPartition(r.topic, r.partition)]]


async def read_values(cluster: LocalCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in await read(cluster, topic)]
