"""The time that a stopped cluster with many partitions needs until all leaders serve."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tidelog.client import Admin, Consumer, Producer
from tidelog.errors import TidelogError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "many"
RECORDS_PER_PARTITION = 20
VALUE = bytes(1024)
POLL_S = 0.05
POLLS = 1200


async def fill(cluster: LocalCluster, partitions: int) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions, 3, timeout_ms=60_000)
    async with Producer(cluster.bootstrap) as producer:
        for partition in range(partitions):
            await producer.send_many(TOPIC, [VALUE] * RECORDS_PER_PARTITION, partition=partition)
        await producer.flush()


async def seconds_to_serve(directory: Path, partitions: int) -> float:
    """Returns the seconds from the start of controllers and brokers until every leader returns its
    committed end. They were stopped cleanly, and etcd kept running."""
    cluster = LocalCluster(directory, usual_ports=False)
    await cluster.start()
    try:
        await cluster.ready()
        await fill(cluster, partitions)
        controllers = [controller.id for controller in cluster.describe().controllers]
        await asyncio.gather(*map(cluster.stop_controller, controllers))
        await asyncio.gather(*map(cluster.stop_broker, cluster.broker_ids))
        started = time.perf_counter()
        for broker in cluster.broker_ids:
            cluster.start_broker(broker)
        for controller in controllers:
            cluster.start_controller(controller)
        await _all_leaders_serve(cluster, partitions)
        return time.perf_counter() - started
    finally:
        await cluster.stop()


async def _all_leaders_serve(cluster: LocalCluster, partitions: int) -> None:
    names = [TopicPartition(TOPIC, p) for p in range(partitions)]
    async with Admin(cluster.bootstrap) as admin:
        for _ in range(POLLS):
            if await _all_led(admin, partitions):
                break
            await asyncio.sleep(POLL_S)
    async with Consumer(cluster.bootstrap) as consumer:
        ends = await consumer.end_offsets(names)
    short = [p for p, end in ends.items() if end != RECORDS_PER_PARTITION]
    if short:
        raise RuntimeError(
            f"{len(short)} partitions lack records after the restart, such as {short[0]}"
        )


async def _all_led(admin: Admin, partitions: int) -> bool:
    try:
        described = await admin.describe_topic(TOPIC)
    except TidelogError:
        # Not registered yet.
        return False
    leaders = [p.leader for p in described.partitions]
    return len(leaders) == partitions and NO_LEADER not in leaders
