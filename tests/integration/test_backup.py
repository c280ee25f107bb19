"""Backups of a running cluster, restored into another one, by the commands of `tidelog backup`."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from beside import beside
from integration.clusters import running_cluster
from integration.explaining import tidelog
from integration.topics import create_topic, new_name, write
from integration.waiting import until, until_true
from tidelog.backup import BackupDirectory, Manifest
from tidelog.backup.creation import PREFETCH_BYTES
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Admin, Consumer, Producer
from tidelog.errors import UnknownTopicError
from tidelog.history import (
    LossMark,
    Operation,
    Outcome,
    PollEnded,
    PollInvoked,
    SendInvoked,
    check_history,
    sends_ended,
)
from tidelog.model import NO_EPOCH, TopicPartition
from tidelog_runtime.local.cluster import LocalCluster

PARTITIONS = 3
RECORDS_A_SEND = 20
PAUSE_SECONDS = 0.005
# A partition of the test takes 10 s at this rate.
SLOW = "200kB"
LARGE_RECORD_BYTES = 32 << 10


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """An empty cluster with one broker."""
    directory = tmp_path_factory.mktemp("target")
    async with running_cluster(directory, brokers=1, controllers=1) as running:
        yield running


class History:
    """What a producer sent and a consumer polled."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.operations: list[Operation] = []
        self.acknowledged = 0

    async def write(self, cluster: LocalCluster, partition: int) -> None:
        """Writes numbered records until it is cancelled; then all have an outcome."""
        client, number = f"producer-{partition}", partition << 32
        name = TopicPartition(self.topic, partition)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            while True:
                values = list(range(number, number + RECORDS_A_SEND))
                number += RECORDS_A_SEND
                self.operations += [SendInvoked(_now_ms(), client, *name, v) for v in values]
                # A send that has begun also ends.
                await asyncio.shield(self._send(producer, client, name, values))
                await asyncio.sleep(PAUSE_SECONDS)

    async def _send(
        self, producer: Producer, client: str, name: TopicPartition, values: list[int]
    ) -> None:
        payloads: list[bytes | None] = [b"%d" % value for value in values]
        sent = await producer.send_many(name.topic, payloads, partition=name.partition)
        (report,) = await sent
        self.acknowledged += len(values)
        self.operations += sends_ended(
            _now_ms(), client, name, values, Outcome.OK, report.base_offset
        )

    async def read(self, cluster: LocalCluster, topic: str) -> None:
        """The final reads, of a topic whose offsets are those of this history's topic."""
        async with Consumer(cluster.bootstrap) as consumer:
            ends = await consumer.end_offsets(await consumer.assign_topic(topic))
            for partition in range(PARTITIONS):
                self.operations.append(
                    PollInvoked(_now_ms(), "reader", self.topic, partition, final=True)
                )
            while any((consumer.position(name) or 0) < end for name, end in ends.items()):
                for batch in await consumer.poll_batches():
                    offsets = range(batch.first_offset, batch.next_offset)
                    values = [int(value or b"-1") for value in batch.columns().values]
                    self.operations.append(
                        PollEnded(
                            _now_ms(),
                            "reader",
                            self.topic,
                            batch.partition.partition,
                            Outcome.OK,
                            offsets,
                            values,
                            [NO_EPOCH] * len(values),
                            final=True,
                        )
                    )

    def written_after(self, manifest: Manifest) -> None:
        """Marks the records behind the backup's end: it does not have them."""
        for name, backup in manifest.partitions():
            if name.topic == self.topic:
                self.operations.append(
                    LossMark(
                        _now_ms(), *name, "written later", NO_EPOCH, 1 << 30, backup.next_offset
                    )
                )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def backup(cluster: LocalCluster, *arguments: str) -> tuple[int | None, str]:
    return await tidelog(cluster, "backup", *arguments)


async def test_a_restored_backup_has_each_record_that_was_acknowledged_before_its_end_once(
    cluster: LocalCluster, target: LocalCluster, tmp_path: Path
) -> None:
    topic = new_name("sea")
    config = {"retention_ms": "86400000", "timestamp_type": "append"}
    await create_topic(cluster, topic, PARTITIONS, config=config)
    directory = tmp_path / "backup"
    history = History(topic)
    async with beside(*(history.write(cluster, n) for n in range(PARTITIONS))):
        await until_true(lambda: history.acknowledged >= 600, "some records are acknowledged")
        status, shown = await backup(cluster, "create", str(directory), "--topics", topic)
        assert status == ExitStatus.DONE, shown
        acknowledged_then = history.acknowledged
    status, shown = await backup(target, "restore", str(directory))
    assert status == ExitStatus.DONE, shown
    assert "replication factor 1 instead of 3" in shown
    compared = await backup(target, "verify", str(directory), "--against", "--json")
    checked = await backup(cluster, "verify", str(directory))
    await history.read(target, topic)
    manifest = BackupDirectory(directory).read()
    history.written_after(manifest)
    async with Admin(target.bootstrap) as admin:
        restored = await admin.describe_topic(topic)

    assert checked[0] == ExitStatus.DONE, checked[1]
    assert compared[0] == ExitStatus.DONE, compared[1]
    found = json.loads(compared[1])
    copied = sum(partition.records for _, partition in manifest.partitions())
    assert (found["records"], found["difference_count"]) == (copied, 0)
    assert 600 <= copied < acknowledged_then
    report = check_history(enumerate(history.operations, 1))
    assert report.anomaly_count == 0, report.findings.counts
    assert report.polled_records == copied
    assert (restored.partition_count, dict(restored.config)) == (PARTITIONS, config)


async def test_a_killed_backup_and_a_killed_restore_are_continued(
    cluster: LocalCluster, target: LocalCluster, tmp_path: Path
) -> None:
    topic = new_name("sea")
    await create_topic(cluster, topic, 2)
    values = [bytes(2_000)] * 1_000
    for partition in range(2):
        await write(cluster, topic, values, partition)
    directory = tmp_path / "backup"
    create = ("create", str(directory), "--topics", topic)

    async def copies() -> bool:
        return any(path.stat().st_size for path in directory.rglob("*.partial"))

    await killed_once(copies, cluster, *create)
    status, shown = await backup(cluster, *create)
    assert status == ExitStatus.DONE, shown
    assert (await backup(cluster, "verify", str(directory)))[0] == ExitStatus.DONE

    restore = ("restore", str(directory))

    async def writes() -> bool:
        return any((await ends(target, topic)).values())

    await killed_once(writes, target, *restore)
    status, shown = await backup(target, *restore, "--json")
    assert status == ExitStatus.DONE, shown
    (restored,) = json.loads(shown[shown.index("{") : shown.rindex("}") + 1])["topics"]
    assert 0 < restored["written"] < restored["records"] == 2_000
    status, shown = await backup(target, "verify", str(directory), "--against")
    assert status == ExitStatus.DONE, shown
    assert "2,000 records" in shown
    assert set((await ends(target, topic)).values()) == {1_000}


async def ends(cluster: LocalCluster, topic: str) -> dict[TopicPartition, int]:
    async with Consumer(cluster.bootstrap) as consumer:
        try:
            return await consumer.end_offsets(await consumer.partitions_of(topic))
        except UnknownTopicError:
            return {}


async def killed_once(
    is_at_work: Callable[[], Awaitable[bool]], cluster: LocalCluster, *arguments: str
) -> None:
    """Kills a command that has transferred one of two partitions, or a part of it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidelog.cli", "backup", *arguments),
        *("--max-rate", SLOW, "--parallelism", "1", "--bootstrap", cluster.bootstrap),
        stdout=asyncio.subprocess.DEVNULL,
    )
    await until(is_at_work, f"{arguments[0]} has transferred something")
    assert process.returncode is None, "the command ended before it was killed"
    process.kill()
    await process.wait()


async def test_a_leader_that_is_killed_during_a_backup_leaves_it_complete(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    topic = new_name("sea")
    leader = (await create_topic(cluster, topic)).partitions[0].leader
    # More than the command fetches ahead, so that another leader has to send the rest.
    value = random.Random(1).randbytes(LARGE_RECORD_BYTES)
    await write(cluster, topic, [value] * (2 * PREFETCH_BYTES // LARGE_RECORD_BYTES))
    directory = tmp_path / "backup"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidelog.cli", "backup", "create", str(directory)),
        *("--topics", topic, "--max-rate", "8MB", "--bootstrap", cluster.bootstrap, "--json"),
        stdout=asyncio.subprocess.PIPE,
    )

    async def copies() -> bool:
        return any(path.stat().st_size for path in directory.rglob("*.partial"))

    await until(copies, "some batches are copied")
    assert process.returncode is None, "the command ended before its leader was killed"
    await cluster.kill(leader)
    try:
        output, _ = await process.communicate()
        ended = await process.wait()
    finally:
        cluster.start_broker(leader)
        await cluster.ready()
    document = json.loads(output)
    assert (ended, document["complete"], document["gaps"]) == (0, True, [])
    assert document["size_bytes"] > 2 * PREFETCH_BYTES
    status, shown = await backup(cluster, "verify", str(directory), "--against", "--json")
    assert status == ExitStatus.DONE, shown
    found = json.loads(shown)
    assert (found["records"], found["difference_count"]) == (document["records"], 0)
    (_, copied), *_ = BackupDirectory(directory).read().partitions()
    assert copied.next_offset == copied.high_watermark == document["records"]


async def test_records_behind_the_fence_of_a_named_producer_are_restored(
    cluster: LocalCluster, target: LocalCluster, tmp_path: Path
) -> None:
    topic = new_name("sea")
    await create_topic(cluster, topic)
    for holder in range(3):
        async with Producer(cluster.bootstrap, producer_name="holder") as producer:
            await (await producer.send_many(topic, [b"%d" % holder] * 10))
    directory = tmp_path / "backup"
    assert (await backup(cluster, "create", str(directory), "--topics", topic))[0] == 0
    (_, found), *_ = BackupDirectory(directory).read().partitions()
    assert len(found.fences) >= 2
    status, shown = await backup(target, "restore", str(directory))
    assert status == ExitStatus.DONE, shown
    assert "offsets.json" in shown
    for compared in (cluster, target):
        status, shown = await backup(compared, "verify", str(directory), "--against")
        assert status == ExitStatus.DONE, shown
