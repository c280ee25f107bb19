"""The only replica of a partition is damaged: just the damaged batch is unreadable, and `tidelog
explain` names its offsets."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from integration.bit_flips import flip_a_bit
from integration.clusters import running_cluster
from integration.explaining import (
    append,
    assert_not_blamed,
    faults_of,
    split,
    text_of,
    the,
    tidelog,
    until_present,
)
from integration.suggested_steps import carried_out, without_standby
from integration.topics import create_topic
from integration.waiting import TIMEOUT_SECONDS
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Consumer
from tidelog.errors import RecordsDamagedError
from tidelog.inspection.state_reports import Finding
from tidelog.model import Acks, TopicPartition
from tidelog_runtime.demo.replicas import find_replica

DAMAGED, SOUND = "sea/0", "sea/1"
BATCHES = (20, 20, 10)


async def readable(bootstrap: str, topic: str, partition: int) -> list[int]:
    """The offsets that a consumer gets which skips damaged batches."""
    assigned = TopicPartition(topic, partition)
    offsets: list[int] = []
    async with asyncio.timeout(TIMEOUT_SECONDS), Consumer(bootstrap, on_damage="skip") as consumer:
        consumer.assign([assigned])
        while not offsets or offsets[-1] < sum(BATCHES) - 1:
            offsets += [record.offset for record in await consumer.poll()]
    return offsets


async def test_damage_in_the_only_replica_loses_one_batch_and_is_explained(tmp_path: Path) -> None:
    """A killed standby controller is the second fault."""
    async with running_cluster(tmp_path, brokers=1) as cluster:
        topic, partition = split(DAMAGED)
        described = await create_topic(cluster, topic, partitions=2, replication_factor=1)
        for name in (DAMAGED, SOUND):
            for records in BATCHES:
                await append(cluster, name, [b"acknowledged"] * records, Acks.ALL)
        replica = find_replica(cluster.broker_data_dir(1), topic, partition, described.topic_id)
        first = flip_a_bit(replica)
        async with without_standby(cluster):
            with pytest.raises(RecordsDamagedError) as damaged:
                await until_damaged(cluster.bootstrap, topic, partition)
            found = await until_present(cluster, ("records_damaged", 1), ("no_standby", -1))
            finding = the(found, "records_damaged")
            healthy = await faults_of(cluster, SOUND)
            skipped = await carried_out(cluster, suggested_command(finding))
        offsets = await readable(cluster.bootstrap, topic, partition)
        await append(cluster, DAMAGED, [b"more"], Acks.ALL)
        status, traced = await tidelog(cluster, "trace", DAMAGED)
        await cluster.kill(1)
        cluster.start_broker(1)
        await cluster.ready()
        again = await readable(cluster.bootstrap, topic, partition)
        kept = list((cluster.broker_data_dir(1) / "evidence").iterdir())

    lost = range(damaged.value.first_offset, damaged.value.next_offset)
    assert (lost.start, len(lost)) == (first, BATCHES[1])
    assert offsets == [o for o in range(sum(BATCHES)) if o not in lost]
    assert again[: len(offsets)] == offsets
    assert (finding.topic, finding.partition, finding.severity) == (topic, partition, "critical")
    assert f"offsets {lost.start} to {lost.stop - 1} are damaged" in text_of(finding)
    assert_not_blamed(found, SOUND)
    assert healthy == []
    assert skipped.splitlines().count("acknowledged") == 2 * sum(BATCHES) - len(lost)
    assert "in evidence/ in the data_dir of broker 1" in finding.next_step
    assert status == ExitStatus.DONE, traced
    assert "batch_damaged" in traced.replace(" ", "_"), traced
    assert len(kept) == 1


def suggested_command(finding: Finding) -> list[str]:
    [command] = re.findall(r"\(tidelog (consume [^,]*), ", finding.next_step)
    return shlex.split(command)


async def until_damaged(bootstrap: str, topic: str, partition: int) -> None:
    """Reads from the start. The first reads find the damage, and wait until the batch is sealed as
    unreadable."""
    async with asyncio.timeout(TIMEOUT_SECONDS), Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        while True:
            await consumer.poll()
