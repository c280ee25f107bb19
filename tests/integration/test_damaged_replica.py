"""A bit flips on the disk of one replica: damaged data are never served, the replica is repaired
from its leader, and nothing else on that broker is affected."""

from __future__ import annotations

import asyncio
from pathlib import Path

from integration.bit_flips import flip_a_bit
from integration.logs import LogSince
from integration.topics import (
    create_topic,
    describe,
    new_name,
    partition_of,
    read,
    until_in_sync,
    until_led_by_another,
    write,
)
from integration.waiting import until
from tidelog.client.descriptions import PartitionDescription, TopicDescription
from tidelog.log_dump import dump_log
from tidelog.model import NO_LEADER
from tidelog_runtime.demo.replicas import differing, find_replica
from tidelog_runtime.local.cluster import LocalCluster

PARTITIONS = 6
BATCHES = 20
VALUES = [b"record %d of a batch" % i for i in range(10)]


async def written(cluster: LocalCluster) -> TopicDescription:
    """A topic with batches in each of its partitions."""
    topic = await create_topic(cluster, new_name("sea"), PARTITIONS)
    for partition in range(PARTITIONS):
        for _ in range(BATCHES):
            await write(cluster, topic.name, VALUES, partition)
    return topic


def faults(replica: Path) -> list[str | None]:
    return [info.fault for _, info in dump_log(replica) if info.fault is not None]


def log_of(cluster: LocalCluster, broker_id: int) -> LogSince:
    return LogSince(cluster.broker_process(broker_id).log_path)


async def until_identical(cluster: LocalCluster, topic: TopicDescription) -> None:
    data_dirs = {b: cluster.broker_data_dir(b) for b in cluster.broker_ids}
    replicas = {p.partition: p.replicas for p in topic.partitions}
    ends = dict.fromkeys(replicas, BATCHES * len(VALUES))

    async def check() -> bool:
        try:
            return not await asyncio.to_thread(
                differing, data_dirs, topic.name, topic.topic_id, replicas, ends
            )
        except ValueError:
            return False  # Still damaged.

    await until(check, f"the replicas of {topic.name} are the same, byte by byte")


async def assert_all_is_read(cluster: LocalCluster, topic: TopicDescription) -> None:
    records = await read(cluster, topic.name)
    for partition in range(PARTITIONS):
        values = [r.value for r in records if r.partition == partition]
        assert values == VALUES * BATCHES


def led_elsewhere(
    before: TopicDescription, after: TopicDescription, partition: int
) -> list[PartitionDescription]:
    """The other partitions whose leader has changed."""
    return [
        now
        for then, now in zip(before.partitions, after.partitions, strict=True)
        if now.partition != partition and now.leader_epoch != then.leader_epoch
    ]


async def test_damage_found_at_start_after_a_crash_affects_only_that_replica(
    cluster: LocalCluster,
) -> None:
    topic = await written(cluster)
    damaged = topic.partitions[0].replicas[1]
    replica = find_replica(cluster.broker_data_dir(damaged), topic.name, 0, topic.topic_id)
    log = log_of(cluster, damaged)

    await cluster.kill(damaged)
    flip_a_bit(replica)
    cluster.start_broker(damaged)
    await cluster.ready()
    await until_in_sync(cluster, topic.name)
    await until_identical(cluster, topic)
    await assert_all_is_read(cluster, topic)

    assert [line["partition"] for line in log.state_changes("replica_damaged")] == [0]
    assert list((cluster.broker_data_dir(damaged) / "damaged").iterdir()) == []


async def test_damage_found_by_a_new_leader_is_not_served_and_another_replica_leads(
    cluster: LocalCluster,
) -> None:
    topic = await written(cluster)
    former, damaged, _ = topic.partitions[0].replicas
    replica = find_replica(cluster.broker_data_dir(damaged), topic.name, 0, topic.topic_id)
    log = log_of(cluster, damaged)

    # After a clean stop no data are read: the damaged replica joins the ISR.
    await cluster.stop_broker(damaged)
    flip_a_bit(replica)
    cluster.start_broker(damaged)
    await cluster.ready()
    await until_in_sync(cluster, topic.name)
    assert faults(replica)
    assert log.state_changes("replica_damaged") == []

    leader = (await partition_of(cluster, topic.name)).leader

    async def check() -> TopicDescription | None:
        """The broker led other partitions as well; each of them moves at its own time."""
        now = await describe(cluster, topic.name)
        leads = now.partitions[0].leader == damaged
        moved = not {leader, NO_LEADER} & {p.leader for p in now.partitions}
        return now if leads and moved else None

    await cluster.kill(leader)
    before = await until(check, f"broker {damaged} leads, and none is led by broker {leader}")
    assert before is not None
    await assert_all_is_read(cluster, topic)
    await until_led_by_another(cluster, topic.name, before.partitions[0])
    after = await describe(cluster, topic.name)
    cluster.start_broker(leader)
    await cluster.ready()
    await until_in_sync(cluster, topic.name)
    await until_identical(cluster, topic)

    assert leader == former
    assert led_elsewhere(before, after, 0) == []
    assert all(damaged in p.isr for p in after.partitions if p.partition != 0)
    for kind in ("replica_damaged", "resignation"):
        assert [line["partition"] for line in log.state_changes(kind, "completed")] == [0]
    assert after.partitions[0].unclean_leader_epoch == -1
    assert faults(replica) == []
