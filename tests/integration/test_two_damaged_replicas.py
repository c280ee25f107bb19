"""The replicas of a partition are damaged at different batches: no single disk has all records, but
together they have.

No replica drops a batch that another one cannot read, and in the end each replica has
everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from integration.bit_flips import flip_a_bit
from integration.clusters import running_cluster
from integration.explaining import tidelog
from integration.logs import LogSince
from integration.topics import create_topic, new_name, partition_of, read, until_in_sync
from integration.waiting import until
from tidelog.batch import is_damaged
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Producer
from tidelog.log_dump import dump_log
from tidelog_runtime.demo.replicas import find_replica
from tidelog_runtime.local.cluster import LocalCluster

VALUES = [b"%d " % number + bytes(2_000) for number in range(12)]
# Larger than any other entry of a request among brokers may be.
LARGE_VALUES = [b"%d " % number + bytes(1_000_000) for number in range(12)]
EARLY, MIDDLE, LATE = 2, 6, 9
# The scrub checks data on the disk, and leaves data that is only in memory to the next pass.
FLUSHED_SOON = {"flush_interval_ms": 500}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("two-damaged")
    async with running_cluster(directory, controllers=1, broker_config=FLUSHED_SOON) as running:
        yield running


def unreadable(replica: Path) -> list[int]:
    """The positions of batches whose records are missing."""
    return [
        info.position
        for _, info in dump_log(replica)
        if info.fault is not None or info.header is None or is_damaged(info.header)
    ]


async def until_present(cluster: LocalCluster, logs: Mapping[int, LogSince]) -> None:
    """Scrubs of these brokers begin at once, and are repeated until each has found its damage.

    A leader whose followers have resigned is alone, and does not resign."""

    async def check() -> bool:
        waiting = [
            b
            for b, log in logs.items()
            if not log.state_changes("replica_damaged", "completed")
            and not log.state_changes("batch_damaged", "failed")
        ]
        for status, printed in await asyncio.gather(
            *(tidelog(cluster, "brokers", "scrub", str(b), "--full-rate") for b in waiting)
        ):
            assert status == ExitStatus.DONE, printed
        return not waiting

    await until(check, f"brokers {sorted(logs)} report their damage")


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize(
    "damaged_batches", [(EARLY, LATE), (LATE, EARLY), (EARLY, LATE, MIDDLE), (LATE, EARLY, MIDDLE)]
)
async def test_records_held_by_any_replica_survive(
    cluster: LocalCluster, damaged_batches: tuple[int, ...]
) -> None:
    await repaired(cluster, damaged_batches, VALUES)


async def test_large_records_held_by_any_replica_survive(cluster: LocalCluster) -> None:
    await repaired(cluster, (EARLY, LATE), LARGE_VALUES)


async def repaired(
    cluster: LocalCluster, damaged_batches: tuple[int, ...], values: list[bytes]
) -> None:
    """Damages one batch in each replica. The first is the leader's; each record is a batch."""
    topic = await create_topic(cluster, new_name("sea"), 1, replication_factor=len(damaged_batches))
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for value in values:
            await (await producer.send(topic.name, value, partition=0))
    await until_in_sync(cluster, topic.name)
    found = await partition_of(cluster, topic.name)
    brokers = sorted(found.replicas, key=lambda broker_id: broker_id != found.leader)
    replicas = {
        b: find_replica(cluster.broker_data_dir(b), topic.name, 0, topic.topic_id) for b in brokers
    }
    logs = {b: LogSince(cluster.broker_process(b).log_path) for b in brokers}

    for broker_id, batch in zip(brokers, damaged_batches, strict=True):
        flip_a_bit(replicas[broker_id], batch)
    assert all(len(unreadable(replica)) == 1 for replica in replicas.values())
    await until_present(cluster, logs)

    async def check() -> bool:
        return not any(map(unreadable, replicas.values()))

    await until(check, f"each replica of {topic.name} has all records")
    await until_in_sync(cluster, topic.name)
    assert [record.value for record in await read(cluster, topic.name)] == values
