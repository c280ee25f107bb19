"""The only replica of a partition is damaged: `tidelog explain` says how many records that has
cost, and `tidelog trace` how it came to it."""

from __future__ import annotations

from pathlib import Path

from integration.bit_flips import flip_a_bit
from integration.clusters import running_cluster
from integration.explaining import (
    append,
    assert_not_blamed,
    reads_from_the_start,
    said,
    split,
    the,
    tidelog,
    until_found,
)
from integration.topics import create_topic
from tidelog.cli.exit_status import ExitStatus
from tidelog.model import Acks
from tidelog_runtime.demo.replicas import find_replica

DAMAGED, SOUND = "sea/0", "sea/1"
BATCHES = (20, 20, 10)


async def test_what_the_only_replica_had_to_cut_is_counted_and_not_denied(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, controllers=1, brokers=1) as cluster:
        topic, partition = split(DAMAGED)
        described = await create_topic(cluster, topic, partitions=2, replication_factor=1)
        for name in (DAMAGED, SOUND):
            for records in BATCHES:
                await append(cluster, name, [b"acknowledged"] * records, Acks.ALL)
        replica = find_replica(cluster.broker_data_dir(1), topic, partition, described.topic_id)
        kept = flip_a_bit(replica)
        await reads_from_the_start(cluster, DAMAGED)

        found = await until_found(cluster, ("unclean_election", 1))
        status, traced = await tidelog(cluster, "trace", DAMAGED)

    unclean = the(found, "unclean_election")
    assert (unclean.topic, unclean.partition) == (topic, partition)
    lost = sum(BATCHES) - kept
    assert 0 < lost < sum(BATCHES)
    assert f"{lost} records that replicas were known to hold were cut" in said(unclean)
    assert_not_blamed(found, SOUND)
    assert status == ExitStatus.DONE, traced
    assert f"lost_records {lost}" in traced, traced
    assert f"log_end_offset {sum(BATCHES)} -> {kept}" in traced, traced
