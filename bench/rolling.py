"""The latency of producers during a rolling restart: every broker in turn is stopped by SIGTERM and
started again; the next one waits until all replicas are in sync."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tidelog.client import Admin, Delivery, Producer
from tidelog.errors import TidelogError
from tidelog_runtime.local.cluster import LocalCluster

PARTITIONS = 6
RECORD_BYTES = 1024
TOPIC = "rolling"
REPLICATION_FACTOR = 3
# The interval between two records: 250 a second, each awaited separately.
PAUSE_S = 0.004
SETTLE_S = 1.0
POLL_S = 0.05
POLLS = 1200


@dataclass(slots=True)
class RollingRestart:
    """The results of a rolling restart.

    - `latencies_ms`: from each `send` to its acknowledgement by all replicas.
    - `failed`: the number of failed sends.
    - `stop_seconds`: from SIGTERM to the end of each broker.
    """

    latencies_ms: list[float] = field(default_factory=list)
    failed: int = 0
    stop_seconds: list[float] = field(default_factory=list)

    def note(self, sent_s: float, delivery: asyncio.Future[Delivery]) -> None:
        if delivery.cancelled() or delivery.exception() is not None:
            self.failed += 1
        else:
            self.latencies_ms.append((time.perf_counter() - sent_s) * 1000)


async def rolling_restart(directory: Path, durability: str) -> RollingRestart:
    """Restarts the brokers of a new cluster, under a load with acks=all."""
    found = RollingRestart()
    cluster = LocalCluster(directory, usual_ports=False)
    await cluster.start()
    try:
        await cluster.ready()
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(
                TOPIC, PARTITIONS, REPLICATION_FACTOR, {"durability": durability}
            )
            await _in_sync(admin)
            stopped = asyncio.Event()
            writing = asyncio.create_task(_write(cluster.bootstrap, found, stopped))
            try:
                await asyncio.sleep(SETTLE_S)
                for broker_id in cluster.broker_ids:
                    await _restart(cluster, broker_id, found)
                    await _in_sync(admin)
                await asyncio.sleep(SETTLE_S)
            finally:
                stopped.set()
                await writing
    finally:
        await cluster.stop()
    return found


async def _restart(cluster: LocalCluster, broker_id: int, found: RollingRestart) -> None:
    began_s = time.perf_counter()
    await cluster.stop_broker(broker_id)
    found.stop_seconds.append(time.perf_counter() - began_s)
    cluster.start_broker(broker_id)
    await cluster.ready()


async def _write(bootstrap: str, found: RollingRestart, stopped: asyncio.Event) -> None:
    value = bytes(RECORD_BYTES)
    async with Producer(bootstrap, linger_ms=0) as producer:
        number = 0
        while not stopped.is_set():
            sent_s = time.perf_counter()
            delivery = await producer.send(TOPIC, value, partition=number % PARTITIONS)
            delivery.add_done_callback(partial(found.note, sent_s))
            number += 1
            await asyncio.sleep(PAUSE_S)


async def _in_sync(admin: Admin) -> None:
    for _ in range(POLLS):
        if await _is_in_sync(admin):
            return
        await asyncio.sleep(POLL_S)
    raise RuntimeError(f"{TOPIC} is not in sync after {POLLS * POLL_S:g} s")


async def _is_in_sync(admin: Admin) -> bool:
    try:
        described = await admin.describe_topic(TOPIC)
    except TidelogError:
        return False
    return len(described.partitions) == PARTITIONS and all(
        len(partition.isr) == REPLICATION_FACTOR for partition in described.partitions
    )
