"""A whole cluster is stopped and started again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from integration.clusters import RUNNING, new_cluster
from integration.logs import LogSince
from integration.topics import create_topic, read, until_in_sync, write
from tidelog_runtime.local.cluster import LocalCluster

CLUSTER = "kept"
TOPICS = {"sea": 6, "lake": 2}
RECORDS = 400
# Far more than a broker reads to start at all, which is its interpreter and its modules.
BULK_BYTES = 64 << 20
BULK_BATCH_BYTES = 1 << 19
# What a process has read until it serves, beyond what it reads with no data at all.
MAX_READ_BYTES = BULK_BYTES // 4
# The figure for a thousand partitions is the bench's to measure; this is a bound.
MAX_START_SECONDS = 20.0


class Kept:
    """A cluster in a directory, as it was when it was stopped."""

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[int, int, bytes | None]]] = {}
        self.topic_ids: dict[str, str] = {}
        self.read_bytes_when_empty: dict[int, int] = {}
        self.statuses: list[int | None] = []


def read_bytes(cluster: LocalCluster, broker_id: int) -> int:
    """What the process has read since its start, from disk or page cache."""
    status = Path(f"/proc/{cluster.broker_process(broker_id).pid}/io").read_text()
    return int(status.partition("rchar: ")[2].partition("\n")[0])


async def contents(cluster: LocalCluster, topic: str) -> list[tuple[int, int, bytes | None]]:
    return sorted((r.partition, r.offset, r.value) for r in await read(cluster, topic))


async def fill_and_stop(directory: Path) -> Kept:
    kept = Kept()
    cluster = new_cluster(directory, cluster=CLUSTER)
    RUNNING.append(cluster)
    try:
        await cluster.start()
        await cluster.ready()
        kept.read_bytes_when_empty = {b: read_bytes(cluster, b) for b in cluster.broker_ids}
        for topic, partitions in TOPICS.items():
            described = await create_topic(cluster, topic, partitions)
            kept.topic_ids[topic] = described.topic_id
            await write(cluster, topic, [b"%s %d" % (topic.encode(), i) for i in range(RECORDS)])
            kept.records[topic] = await contents(cluster, topic)
        await create_topic(cluster, "bulk", 1)
        value = bytes(BULK_BATCH_BYTES)
        await write(cluster, "bulk", [value] * (BULK_BYTES // BULK_BATCH_BYTES), partition=0)
    finally:
        RUNNING.remove(cluster)
        processes = cluster.processes()
        await cluster.stop()
    kept.statuses = [process.exit_status for process in processes[1:]]
    return kept


async def test_a_cluster_that_is_started_again_has_kept_everything_and_reads_none_of_it(
    tmp_path: Path,
) -> None:
    kept = await fill_and_stop(tmp_path)
    cluster = new_cluster(tmp_path, cluster=CLUSTER)
    RUNNING.append(cluster)
    try:
        logs = [LogSince(tmp_path / "logs" / f"broker-{b}.log") for b in cluster.broker_ids]
        started = time.monotonic()
        await cluster.start()
        await cluster.ready()
        seconds = time.monotonic() - started
        read_more = {
            b: read_bytes(cluster, b) - kept.read_bytes_when_empty[b] for b in cluster.broker_ids
        }
        described = [await until_in_sync(cluster, topic) for topic in TOPICS]
        found = {topic: await contents(cluster, topic) for topic in TOPICS}
    finally:
        RUNNING.remove(cluster)
        await cluster.stop()

    assert kept.statuses == [0] * 5
    assert {t.name: t.topic_id for t in described} == kept.topic_ids
    assert {t.name: len(t.partitions) for t in described} == TOPICS
    assert all(len(p.isr) == 3 and p.leader in p.isr for t in described for p in t.partitions)
    assert found == kept.records
    assert sum(map(len, found.values())) == RECORDS * len(TOPICS)
    assert not any(log.events("log_recovered") for log in logs)
    print(read_more, kept.read_bytes_when_empty, seconds)  # noqa
    assert max(read_more.values()) < MAX_READ_BYTES, read_more
    assert seconds < MAX_START_SECONDS


async def test_a_cluster_that_was_killed_altogether_has_kept_everything(tmp_path: Path) -> None:
    values = [b"record %d" % i for i in range(RECORDS)]
    cluster = new_cluster(tmp_path)
    RUNNING.append(cluster)
    try:
        await cluster.start()
        await cluster.ready()
        await create_topic(cluster, "sea", 1)
        await write(cluster, "sea", values)
        # The page cache outlives the processes: nothing that was acknowledged is lost.
        await asyncio.gather(*(cluster.kill(b) for b in cluster.broker_ids))
        for broker_id in cluster.broker_ids:
            cluster.start_broker(broker_id)
        await cluster.ready()
        [partition] = (await until_in_sync(cluster, "sea")).partitions
        found = [record.value for record in await read(cluster, "sea")]
        await write(cluster, "sea", [b"one more"])
    finally:
        RUNNING.remove(cluster)
        await cluster.stop()

    assert found == values
    assert partition.unclean_leader_epoch == -1
