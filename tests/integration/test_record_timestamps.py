"""Timestamps of records in the wrong unit do no harm."""

from __future__ import annotations

import os
import time

from integration.topics import new_name, read, until_in_sync
from integration.waiting import until
from tidelog.client import Admin, Consumer, Producer
from tidelog.model import TopicPartition
from tidelog_runtime.local.cluster import LocalCluster

HOUR_MS = 3_600_000
VALUE_BYTES, SEGMENT_BYTES = 24 << 10, 64 << 10


async def test_timestamps_in_seconds_delete_no_record_early(cluster: LocalCluster) -> None:
    """Read as milliseconds they lie in January 1970, long before the retention time."""
    seconds = time.time_ns() // 1_000_000_000
    past, brief = new_name("past"), new_name("brief")
    async with Admin(cluster.bootstrap) as admin:
        for topic, retention_ms in ((past, 24 * HOUR_MS), (brief, 1_000)):
            config = {"segment_bytes": str(SEGMENT_BYTES), "retention_ms": str(retention_ms)}
            await admin.create_topic(topic, assignment=[[1, 2, 3]], config=config)
            await until_in_sync(cluster, topic)
        values = await write_segments(cluster, past, seconds)
        # Each time that segments of the other topic are deleted, retention has checked this one.
        for _ in range(2):
            await write_segments(cluster, brief, time.time_ns() // 1_000_000)
            await until_deleted(cluster, brief)
        records = await read(cluster, past)
        assert [record.value for record in records] == values
        assert {record.timestamp_ms for record in records} == {seconds}
        # Its segments could have been deleted.
        await admin.alter_topic_config(past, {"retention_ms": "1000"})
        await until_deleted(cluster, past)


async def write_segments(cluster: LocalCluster, topic: str, timestamp_ms: int) -> list[bytes]:
    """Writes records of some segments, and returns their values."""
    values = [os.urandom(VALUE_BYTES) for _ in range(10)]
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for value in values:
            await (await producer.send(topic, value, partition=0, timestamp_ms=timestamp_ms))
    return values


async def until_deleted(cluster: LocalCluster, topic: str) -> None:
    """Waits until all records that are not in the newest segment are deleted."""
    partition = TopicPartition(topic, 0)
    async with Consumer(cluster.bootstrap) as consumer:

        async def is_deleted() -> bool:
            start = (await consumer.beginning_offsets([partition]))[partition]
            end = (await consumer.end_offsets([partition]))[partition]
            return (end - start) * VALUE_BYTES < SEGMENT_BYTES

        await until(is_deleted, f"segments of {topic} are deleted")
