"""The scrub finds a flipped byte in an old, closed segment before any reader does.

A replica is repaired from another one; in the only copy, just the damaged batch becomes
unreadable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import assert_not_blamed, text_of, the, tidelog, until_present
from integration.explaining import explained as explanation_of
from integration.logs import LogSince
from integration.reconfigured import restart_broker
from integration.scraped import scrape
from integration.suggested_steps import until_gone
from integration.topics import (
    create_topic,
    new_name,
    read,
    read_values,
    until_in_sync,
    until_led_by_another,
)
from integration.waiting import TIMEOUT_SECONDS, until, until_true
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Consumer, Producer
from tidelog.client.descriptions import TopicDescription
from tidelog.client.scrubbing import scrub_broker
from tidelog.errors import RecordsDamagedError
from tidelog.inspection.explain import causes
from tidelog.inspection.scrub_progress import ScrubProgress
from tidelog.log_dump import dump_log, segment_paths
from tidelog.model import TopicPartition
from tidelog_runtime.demo.replicas import find_replica
from tidelog_runtime.local.cluster import LocalCluster

RECORDS = 48
VALUE = bytes(range(256)) * 16
# The smallest possible segments: each has some of the records.
SEGMENT_BYTES = 64 << 10
CONFIG = {"segment_bytes": str(SEGMENT_BYTES)}
SCRUB_PERIOD_MS = 5_000
BROKERS = (1, 2, 3)
# The scrub checks data on the disk, and leaves data that is only in memory to the next pass.
FLUSHED_SOON = {"flush_interval_ms": 500}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("scrub")
    async with running_cluster(directory, controllers=1, broker_config=FLUSHED_SOON) as running:
        yield running


async def written(cluster: LocalCluster, replication_factor: int) -> TopicDescription:
    """A topic of one partition with closed segments; each record is a batch."""
    topic = await create_topic(
        cluster, new_name("sea"), 1, replication_factor=replication_factor, config=CONFIG
    )
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for number in range(RECORDS):
            await (await producer.send(topic.name, b"%d " % number + VALUE, partition=0))
    return await until_in_sync(cluster, topic.name)


def replica_of(cluster: LocalCluster, topic: TopicDescription, broker_id: int) -> Path:
    return find_replica(cluster.broker_data_dir(broker_id), topic.name, 0, topic.topic_id)


def flip_in_segment(replica: Path, number: int = 0) -> int:
    """Flips a byte in the second batch of a closed segment, by default the oldest one; returns the
    offset of its record."""
    closed = segment_paths(replica)[:-1]
    info = [info for _, info in dump_log(closed[number])][1]
    assert info.header is not None
    with closed[number].open("r+b") as file:
        file.seek(info.position + info.size - 5)
        [byte] = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 4]))
    return info.header.base_offset


def faults(replica: Path) -> list[str]:
    return [info.fault for _, info in dump_log(replica) if info.fault is not None]


async def scrub_until(
    cluster: LocalCluster, broker_id: int, log: LogSince, kind: str, stage: str
) -> None:
    """Starts passes until the broker reports this cause: a pass checks what was flushed before
    it."""

    async def check() -> bool:
        if log.state_changes(kind, stage):
            return True
        status, printed = await tidelog(cluster, "brokers", "scrub", str(broker_id), "--full-rate")
        assert status == ExitStatus.DONE, printed
        return bool(log.state_changes(kind, stage))

    await until(check, f"broker {broker_id} reports {kind}")


async def damage_found_by_scrub(cluster: LocalCluster, broker_id: int) -> float:
    metrics = await scrape(cluster.broker_metrics(broker_id))
    return metrics.value("scrub_damaged_batches_total") or 0


def log_of(cluster: LocalCluster, broker_id: int) -> LogSince:
    return LogSince(cluster.broker_process(broker_id).log_path)


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_flipped_byte_is_repaired_before_it_is_read(
    cluster: LocalCluster, role: str
) -> None:
    topic = await written(cluster, 3)
    [partition] = topic.partitions
    follower = next(b for b in partition.replicas if b != partition.leader)
    damaged = partition.leader if role == "leader" else follower
    replica, log = replica_of(cluster, topic, damaged), log_of(cluster, damaged)
    found_before = await damage_found_by_scrub(cluster, damaged)
    flip_in_segment(replica)
    assert len(faults(replica)) == 1

    await scrub_until(cluster, damaged, log, "replica_repaired", "completed")
    if role == "leader":
        await until_led_by_another(cluster, topic.name, partition)
    await until_in_sync(cluster, topic.name)

    assert faults(replica) == []
    [event] = log.state_changes("replica_damaged")
    assert (event["topic"], event["partition"], event["cause"]) == (topic.name, 0, "corrupt")
    assert "CRC32C" in event["details"]["why"]
    [event] = log.events("scrub_found_damage")
    assert event["partition"] == f"{topic.name}/0"
    assert await damage_found_by_scrub(cluster, damaged) == found_before + 1
    others = [log_of(cluster, b) for b in BROKERS if b != damaged]
    assert not any(other.state_changes("batch_damaged") for other in others)
    values = [record.value for record in await read(cluster, topic.name)]
    assert values == [b"%d " % number + VALUE for number in range(RECORDS)]
    assert_not_blamed(await explanation_of(cluster), f"{topic.name}/0")
    evidence = cluster.broker_data_dir(damaged) / "evidence"
    assert any(topic.topic_id in path.name for path in evidence.iterdir())


async def read_past_damage(
    bootstrap: str, partition: TopicPartition
) -> tuple[list[int], list[RecordsDamagedError]]:
    """The readable offsets up to the end, and every error on the way."""
    offsets: list[int] = []
    errors: list[RecordsDamagedError] = []
    async with asyncio.timeout(TIMEOUT_SECONDS), Consumer(bootstrap) as consumer:
        consumer.assign([partition])
        while not offsets or offsets[-1] < RECORDS - 1:
            try:
                offsets += [record.offset for record in await consumer.poll()]
            except RecordsDamagedError as error:
                errors.append(error)
                await consumer.seek(partition, error.next_offset)
    return offsets, errors


async def test_in_the_only_copy_just_the_damaged_batch_becomes_unreadable(
    cluster: LocalCluster,
) -> None:
    topic, bystander = await written(cluster, 1), await written(cluster, 1)
    damaged = topic.partitions[0].leader
    replica, log = replica_of(cluster, topic, damaged), log_of(cluster, damaged)
    found_before = await damage_found_by_scrub(cluster, damaged)
    lost = flip_in_segment(replica)

    await scrub_until(cluster, damaged, log, "batch_damaged", "failed")
    found = await until_present(cluster, (causes.RECORDS_DAMAGED, damaged))
    offsets, errors = await read_past_damage(cluster.bootstrap, TopicPartition(topic.name, 0))

    assert [(error.first_offset, error.next_offset) for error in errors] == [(lost, lost + 1)]
    assert offsets == [offset for offset in range(RECORDS) if offset != lost]
    [event] = log.state_changes("batch_damaged")
    assert (event["details"]["first_offset"], event["details"]["next_offset"]) == (lost, lost + 1)
    assert log.state_changes("resignation") == []
    finding = the(found, causes.RECORDS_DAMAGED, damaged)
    assert (finding.topic, finding.partition) == (topic.name, 0)
    assert f"at offsets {lost} to {lost} cannot be read" in text_of(finding)
    assert_not_blamed(found, f"{bystander.name}/0")
    metrics = await scrape(cluster.broker_metrics(damaged))
    assert metrics.value("damaged_batches") == 1
    assert await damage_found_by_scrub(cluster, damaged) == found_before + 1
    assert faults(replica) == []
    assert len(await read(cluster, bystander.name)) == RECORDS


async def test_a_delayed_pass_is_reported_and_after_a_restart_finds_damage_by_itself(
    tmp_path: Path,
) -> None:
    """No command begins a pass here. The restart changes the settings, as the finding suggests."""
    slowly = {"scrub_period_ms": SCRUB_PERIOD_MS, "scrub_bytes_per_second": 1 << 10}
    # No later pass begins within the test.
    sufficient = {"scrub_period_ms": 3_600_000, "scrub_bytes_per_second": 8 << 20}
    async with running_cluster(
        tmp_path, brokers=2, controllers=1, broker_config=FLUSHED_SOON | {"scrub_period_ms": 0}
    ) as cluster:
        topic = await written(cluster, 2)
        replica, log = replica_of(cluster, topic, 1), log_of(cluster, 1)
        await restart_broker(cluster, 1, slowly)
        why = "scrub_bytes_per_second bounds its rate"
        found = await until_present(cluster, (causes.SCRUB_OVERDUE, 1), containing=(why,))
        late = the(found, causes.SCRUB_OVERDUE)
        assert late.severity == causes.WARNING
        assert "Raise the setting of broker 1 that is named" in late.next_step
        metrics = await scrape(cluster.broker_metrics(1))
        assert (metrics.value("scrub_overdue_seconds") or 0) > 0

        before = await scrub_progress(cluster, 1)
        assert before.running
        assert 0 < before.pass_bytes < 2 * SEGMENT_BYTES
        flip_in_segment(replica, 2)
        await until_in_sync(cluster, topic.name)
        await restart_broker(cluster, 1, sufficient)
        await until_true(
            lambda: bool(log.state_changes("replica_repaired", "completed")), "it is repaired"
        )
        await until_gone(cluster, causes.SCRUB_OVERDUE)

        async def ended() -> ScrubProgress | None:
            progress = await scrub_progress(cluster, 1)
            return None if progress.running else progress

        after = await until(ended, "the pass has ended")
        await until_in_sync(cluster, topic.name)
        values = await read_values(cluster, topic.name)

    [event] = log.events("scrub_found_damage")
    assert event["partition"] == f"{topic.name}/0"
    assert after is not None
    assert after.passes == 1
    assert after.last_pass_began_ms == before.pass_began_ms
    assert after.damage_found == 1
    assert faults(replica) == []
    assert values == [b"%d " % number + VALUE for number in range(RECORDS)]


async def scrub_progress(cluster: LocalCluster, broker_id: int) -> ScrubProgress:
    return await scrub_broker(
        cluster.broker_address(broker_id), begin=False, full_rate=False, timeout_seconds=10
    )
