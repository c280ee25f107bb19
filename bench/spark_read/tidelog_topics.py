"""Topics of Tidelog, filled by its own client."""

from __future__ import annotations

import asyncio
import time

from bench.spark_read.records import RECORDS_PER_MS, chunks, in_partition, key_of, value_of
from tidelog.client import Admin, Producer

# The records that are passed to the client at once.
CHUNK_RECORDS = 20_000
IN_SYNC_S = 120.0
_PAUSE_S = 0.5


async def fill(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    partitions: int,
    replicas: int,
    value_bytes: int,
    batch_bytes: int,
) -> None:
    """Creates the topic as well, and returns once every follower has all records."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions, replicas)
        async with Producer(bootstrap, batch_bytes=batch_bytes) as producer:
            for partition in range(partitions):
                numbers = in_partition(partition, records, partitions)
                await _send(producer, topic, partition, numbers, value_bytes)
        async with asyncio.timeout(IN_SYNC_S):
            while not await _in_sync(admin, topic):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(_PAUSE_S)


async def _in_sync(admin: Admin, topic: str) -> bool:
    partitions = (await admin.describe_topic(topic)).partitions
    return all(len(partition.isr) == len(partition.replicas) for partition in partitions)


async def _send(
    producer: Producer, topic: str, partition: int, numbers: range, value_bytes: int
) -> None:
    """Raises `TidelogError`."""
    began_ms = time.time_ns() // 1_000_000
    deliveries = [
        await producer.send_many(
            topic,
            [value_of(number, value_bytes) for number in some],
            [key_of(number) for number in some],
            partition=partition,
            timestamps_ms=[began_ms + number // RECORDS_PER_MS for number in some],
        )
        for some in chunks(numbers, CHUNK_RECORDS)
    ]
    for delivery in deliveries:
        await delivery
