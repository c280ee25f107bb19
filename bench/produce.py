"""Throughput and latency of one producer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

from tidelog.client import Admin, Producer

RECORD_BYTES = 1024
BATCH_BYTES = 64 << 10
PARTITIONS = 6


async def create_topic(
    bootstrap: str, topic: str, replication_factor: int, config: Mapping[str, str] | None = None
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(
            topic,
            PARTITIONS,
            replication_factor,
            # Old data is dropped while the bench runs, so that it does not fill the disk.
            {
                "retention_bytes": str(256 << 20),
                "segment_bytes": str(64 << 20),
                **(config or {}),
            },
        )


async def mb_per_second(bootstrap: str, topic: str, seconds: float) -> float:
    """10^6 bytes a second of values, acknowledged by acks=all: 64 KiB batches of 1 KiB
    records through `send_many`."""
    values = [bytes(RECORD_BYTES)] * (BATCH_BYTES // RECORD_BYTES)
    async with Producer(bootstrap, batch_bytes=BATCH_BYTES) as producer:
        for partition in range(PARTITIONS):
            await (await producer.send_many(topic, values, partition=partition))
        sent = 0
        started = time.perf_counter()
        end = started + seconds
        while time.perf_counter() < end:
            await producer.send_many(topic, values, partition=sent % PARTITIONS)
            sent += 1
        await producer.flush()
        return sent * BATCH_BYTES / (time.perf_counter() - started) / 1e6


async def latencies_ms(bootstrap: str, topic: str, count: int) -> Sequence[float]:
    """One record in flight: from `send` to its acknowledgement by all, sorted."""
    value = bytes(RECORD_BYTES)
    found = []
    async with Producer(bootstrap, linger_ms=0) as producer:
        for number in range(count + count // 10):
            started = time.perf_counter()
            await (await producer.send(topic, value, partition=number % PARTITIONS))
            found.append((time.perf_counter() - started) * 1000)
    return sorted(found[count // 10 :])


def percentile(values: Sequence[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
