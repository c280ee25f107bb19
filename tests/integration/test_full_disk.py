"""The disk of one broker is full: the broker reports it, nothing is corrupted, and the other
brokers continue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import explained, text_of
from integration.full_disk import FileSizeLimit, FullDisk, full_disks
from integration.inspected import events_of
from integration.load import load
from integration.topics import create_topic, describe, new_name, read, until_in_sync, until_isr
from integration.waiting import until
from integration.wire_client import WireClient, assert_rejected, values_of, wire_batch
from tidelog.client import Admin
from tidelog.client.descriptions import TopicDescription
from tidelog.log_dump import dump_log
from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog.v1 import errors_pb2
from tidelog_runtime.demo.replicas import find_replica
from tidelog_runtime.local.cluster import LocalCluster

FULL = 1
VALUE = bytes(range(256)) * 256
# Large enough that segments of the partitions under test are the largest files.
RECORDS = 8


@dataclass(frozen=True)
class Disk:
    cluster: LocalCluster
    disk: FullDisk

    def fill(self) -> None:
        self.disk.fill(self.cluster, FULL)

    def free(self) -> None:
        self.disk.free(self.cluster, FULL)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=full_disks())
async def disk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Disk]:
    kind: type[FullDisk] = request.param
    directory = tmp_path_factory.mktemp("full-disk")
    full = kind()
    full.prepare(directory / "brokers" / str(FULL))
    try:
        async with running_cluster(directory, controllers=1) as cluster:
            yield Disk(cluster, full)
    finally:
        full.release()


async def disk_events(cluster: LocalCluster, topic: str) -> list[StateChange]:
    """Returns the events up to the disk's recovery, which is reported a moment after it happens."""
    address = cluster.broker_address(FULL)

    async def again() -> list[StateChange]:
        return await events_of(address, topic, Kind.DISK_RECOVERED.value)

    await until(again, "the recovery of the disk is reported")
    kinds = (Kind.DISK_REFUSED.value, Kind.DISK_RECOVERED.value)
    return await events_of(address, topic, *kinds)


def led_by(topic: TopicDescription, broker_id: int) -> int:
    return next(p.partition for p in topic.partitions if p.leader == broker_id)


def frames(directory: Path) -> list[tuple[int, int]]:
    """The first offset and size of each batch on disk; fails if anything is damaged."""
    found = []
    for segment, info in dump_log(directory):
        assert info.fault is None, f"{segment} at {info.position}: {info.fault}"
        assert info.header is not None
        found.append((info.header.base_offset, info.size))
    return found


async def fill_up(client: WireClient, topic: str, partition: int) -> Sequence[bytes]:
    """Returns how many records the log had before the disk was full."""
    values = [b"%d " % i + VALUE for i in range(RECORDS)]
    for value in values:
        assert not (await client.produce(topic, partition, wire_batch(value))).HasField("error")
    return values


@pytest.mark.asyncio(loop_scope="module")
async def test_a_leader_whose_disk_is_full_rejects_and_then_resumes(disk: Disk) -> None:
    cluster, topic = disk.cluster, new_name("sea")
    described = await create_topic(cluster, topic, 3, replication_factor=1)
    full, other = led_by(described, FULL), led_by(described, FULL + 1)
    replica = find_replica(cluster.broker_data_dir(FULL), topic, full, described.topic_id)
    pid = cluster.broker_process(FULL).pid
    async with (
        WireClient(cluster.broker_address(FULL)) as client,
        WireClient(cluster.broker_address(FULL + 1)) as other_client,
    ):
        values = await fill_up(client, topic, full)
        before = frames(replica)
        disk.fill()
        try:
            rejected = [await client.produce(topic, full, wire_batch(VALUE)) for _ in range(3)]
            elsewhere = await other_client.produce(topic, other, wire_batch(VALUE))
            fetched = await client.fetch(topic, full, 0)
            end = await client.end_offset(topic, full)
            after = frames(replica)
        finally:
            disk.free()
        resumed = await client.produce(topic, full, wire_batch(b"calm"))
        last = await client.fetch(topic, full, RECORDS)
    changes = await disk_events(cluster, topic)

    for result in rejected:
        assert_rejected(
            result.error,
            errors_pb2.ERROR_CODE_STORAGE_ERROR,
            f"{topic}/{full} cannot be written",
            disk.disk.message,
        )
        assert "free space" in result.error.message or "disk" in result.error.message
    assert cluster.broker_process(FULL).pid == pid
    assert not elsewhere.HasField("error")
    assert values_of(fetched.batches) == values
    assert end == RECORDS
    assert after == before
    assert (resumed.HasField("error"), resumed.base_offset) == (False, RECORDS)
    assert values_of(last.batches) == [b"calm"]
    assert [(change.kind, change.partition) for change in changes] == [
        (Kind.DISK_REFUSED, full),
        (Kind.DISK_RECOVERED, full),
    ]
    assert {change.cause for change in changes} == {Cause.DISK_FULL}


@pytest.mark.rule("failing-disk-transfers-leadership")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_leader_whose_disk_is_full_transfers_leadership(disk: Disk) -> None:
    cluster, topic = disk.cluster, new_name("sea")
    described = await create_topic(cluster, topic, 3)
    number = led_by(described, FULL)
    async with WireClient(cluster.broker_address(FULL)) as client:
        await fill_up(client, topic, number)
    disk.fill()
    try:
        async with load(cluster, topic, number) as written:
            await until_isr(cluster, topic, {FULL + 1, FULL + 2}, number)
            await written.acknowledges(20)
            leader = (await describe(cluster, topic)).partitions[number].leader
            changes = await events_of(cluster.controller_address(1), topic, Kind.ELECTION.value)
            found = [f for f in (await explained(cluster)).findings if f.cause == "disk_full"]
    finally:
        disk.free()
    await until_in_sync(cluster, topic)
    records = [r for r in await read(cluster, topic) if r.partition == number]

    assert leader != FULL
    completed = [e for e in changes if e.stage is Stage.COMPLETED]
    assert [(e.partition, e.cause) for e in completed] == [(number, Cause.DISK_FULL)]
    (full,) = found
    assert full.broker == FULL
    assert "leadership of 1 partition transferred to other brokers" in full.summary
    assert f"broker {FULL} led it in epoch 0, its writes have failed for" in text_of(full)
    assert f"broker {leader} leads it now, in epoch 1" in text_of(full)
    written.assert_all_in(records[RECORDS:])


@pytest.mark.asyncio(loop_scope="module")
async def test_a_follower_whose_disk_is_full_leaves_the_isr_and_returns(disk: Disk) -> None:
    cluster, topic = disk.cluster, new_name("sea")
    described = await create_topic(cluster, topic, 3)
    partition = next(p for p in described.partitions if p.leader != FULL)
    number, others = partition.partition, set(partition.replicas) - {FULL}
    replica = find_replica(cluster.broker_data_dir(FULL), topic, number, described.topic_id)
    async with WireClient(cluster.broker_address(partition.leader)) as client:
        await fill_up(client, topic, number)
        disk.fill()
        try:
            async with load(cluster, topic, number) as written:
                await until_isr(cluster, topic, others, number)
                await written.acknowledges(20)
                frames(replica)
        finally:
            disk.free()
        await until_in_sync(cluster, topic)
        end = await client.end_offset(topic, number)

        async def check() -> bool:
            return sum(1 for _ in frames(replica)) > 0 and last_offset(replica) == end

        await until(check, "the follower has everything")
    records = [r for r in await read(cluster, topic) if r.offset >= RECORDS]

    written.assert_all_in(records)


def last_offset(replica: Path) -> int:
    *_, (_, last) = dump_log(replica)
    assert last.header is not None
    return last.header.next_offset


@pytest.mark.asyncio(loop_scope="module")
async def test_after_a_full_disk_a_killed_broker_starts_with_all_its_data(disk: Disk) -> None:
    cluster, topic = disk.cluster, new_name("sea")
    described = await create_topic(cluster, topic, 3, replication_factor=1)
    number = led_by(described, FULL)
    async with WireClient(cluster.broker_address(FULL)) as client:
        values = await fill_up(client, topic, number)
        disk.fill()
        try:
            rejected = await client.produce(topic, number, wire_batch(VALUE))
            await cluster.kill(FULL)
        finally:
            if not isinstance(disk.disk, FileSizeLimit):
                disk.free()
    cluster.start_broker(FULL)
    await cluster.ready()
    await until_in_sync(cluster, topic)
    async with WireClient(cluster.broker_address(FULL)) as client:

        async def check() -> bool:
            return not (await client.fetch(topic, number, 0)).HasField("error")

        await until(check, f"broker {FULL} leads {topic}/{number} again")
        fetched = await client.fetch(topic, number, 0)
        resumed = await client.produce(topic, number, wire_batch(b"calm"))

    assert_rejected(rejected.error, errors_pb2.ERROR_CODE_STORAGE_ERROR, disk.disk.message)
    assert values_of(fetched.batches) == values
    assert (resumed.HasField("error"), resumed.base_offset) == (False, RECORDS)


# Free space does not change a limit of the file size.
@pytest.mark.rule("deletions-free-a-full-disk")
@pytest.mark.parametrize(
    "disk", [kind for kind in full_disks() if kind is not FileSizeLimit], indirect=True
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_full_disk_is_freed_by_a_deletion_and_by_retention_after_a_crash(
    disk: Disk,
) -> None:
    """The file that fills the disk stays: only Tidelog's own data can be freed."""
    cluster, kept, deleted = disk.cluster, new_name("sea"), new_name("gone")
    numbers = {}
    for topic in (kept, deleted):
        described = await create_topic(
            cluster, topic, 3, replication_factor=1, config={"segment_bytes": "65536"}
        )
        numbers[topic] = led_by(described, FULL)
        async with WireClient(cluster.broker_address(FULL)) as client:
            await fill_up(client, topic, numbers[topic])
    disk.fill()
    try:
        assert await rejects(cluster, kept, numbers[kept])
        await cluster.kill(FULL)
        cluster.start_broker(FULL)
        await cluster.ready()
        await until_in_sync(cluster, kept)
        assert await rejects(cluster, kept, numbers[kept])
        next_steps = [f.next_step for f in (await explained(cluster)).findings if f.broker == FULL]

        async with Admin(cluster.bootstrap) as admin:
            await admin.delete_topic(deleted)
        await until_accepted(cluster, kept, numbers[kept])

        disk.fill()
        assert await rejects(cluster, kept, numbers[kept])
        async with Admin(cluster.bootstrap) as admin:
            await admin.alter_topic_config(kept, {"retention_bytes": "65536"})
        await until_accepted(cluster, kept, numbers[kept])
    finally:
        disk.free()
    assert any("or delete topics" in step for step in next_steps)


async def rejects(cluster: LocalCluster, topic: str, partition: int) -> bool:
    """Waits for a rejection, which comes within a few records."""
    async with WireClient(cluster.broker_address(FULL)) as client:
        for _ in range(RECORDS):
            if (await client.produce(topic, partition, wire_batch(VALUE))).HasField("error"):
                return True
    return False


async def until_accepted(cluster: LocalCluster, topic: str, partition: int) -> None:
    async def check() -> bool:
        async with WireClient(cluster.broker_address(FULL)) as client:
            return not (await client.produce(topic, partition, wire_batch(VALUE))).HasField("error")

    await until(check, f"broker {FULL} takes records again")
