"""A whole cluster is stopped, or killed, and started again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from integration.clusters import running_cluster
from integration.logs import LogSince
from integration.topics import create_topic, read, until_in_sync, write
from tidelog_runtime.local.cluster import LocalCluster

CLUSTER = "kept"
TOPICS = {"sea": 6, "lake": 2}
RECORDS = 400
BULK_BYTES = 16 << 20
BULK_BATCH_BYTES = 1 << 19
# The bytes that a process may read until it serves, beyond what it reads without any data: its
# checkpoints and indexes, and none of the records.
MAX_READ_BYTES = 1 << 20
# Mostly the start of seven processes; the bench measures many partitions.
MAX_START_SECONDS = 20.0


def read_bytes(cluster: LocalCluster, broker_id: int) -> int:
    """The bytes that the process has read since its start, from disk or page cache."""
    counters = Path(f"/proc/{cluster.broker_process(broker_id).pid}/io").read_text()
    return int(counters.partition("rchar: ")[2].partition("\n")[0])


async def contents(cluster: LocalCluster, topic: str) -> list[tuple[int, int, bytes | None]]:
    return sorted((r.partition, r.offset, r.value) for r in await read(cluster, topic))


async def test_a_restarted_cluster_keeps_everything_without_reading_it(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, cluster=CLUSTER) as cluster:
        empty = {b: read_bytes(cluster, b) for b in cluster.broker_ids}
        previous = [await create_topic(cluster, topic, count) for topic, count in TOPICS.items()]
        for topic in TOPICS:
            await write(cluster, topic, [b"%s %d" % (topic.encode(), i) for i in range(RECORDS)])
        written = {topic: await contents(cluster, topic) for topic in TOPICS}
        await create_topic(cluster, "bulk")
        bulk = [bytes(BULK_BATCH_BYTES)] * (BULK_BYTES // BULK_BATCH_BYTES)
        await write(cluster, "bulk", bulk)
    statuses = {process.name: process.exit_status for process in cluster.processes()}
    logs = [LogSince(tmp_path / "logs" / f"broker-{b}.log") for b in cluster.broker_ids]

    started = time.monotonic()
    async with running_cluster(tmp_path, cluster=CLUSTER) as cluster:
        seconds = time.monotonic() - started
        read_more = {b: read_bytes(cluster, b) - empty[b] for b in cluster.broker_ids}
        present = [await until_in_sync(cluster, topic) for topic in TOPICS]
        found = {topic: await contents(cluster, topic) for topic in TOPICS}
        await write(cluster, "sea", [b"one more"])

    assert set(statuses.values()) == {0}, statuses
    assert [t.topic_id for t in present] == [t.topic_id for t in previous]
    assert all(len(p.isr) == 3 and p.leader in p.isr for t in present for p in t.partitions)
    assert all(p.unclean_leader_epoch == -1 for t in present for p in t.partitions)
    assert found == written
    assert {topic: len(records) for topic, records in found.items()} == dict.fromkeys(
        TOPICS, RECORDS
    )
    assert not any(log.events("log_recovered") for log in logs)
    assert max(read_more.values()) < MAX_READ_BYTES, read_more
    assert seconds < MAX_START_SECONDS


async def test_a_cluster_whose_brokers_were_all_killed_keeps_everything(
    tmp_path: Path,
) -> None:
    values = [b"record %d" % i for i in range(RECORDS)]
    async with running_cluster(tmp_path) as cluster:
        await create_topic(cluster, "sea")
        await write(cluster, "sea", values)
        # The page cache outlives the processes: no acknowledged record is lost.
        await asyncio.gather(*(cluster.kill(b) for b in cluster.broker_ids))
        for broker_id in cluster.broker_ids:
            cluster.start_broker(broker_id)
        await cluster.ready()
        [partition] = (await until_in_sync(cluster, "sea")).partitions
        await write(cluster, "sea", [b"one more"])
        found = [record.value for record in await read(cluster, "sea")]

    assert found == [*values, b"one more"]
    assert partition.unclean_leader_epoch == -1
