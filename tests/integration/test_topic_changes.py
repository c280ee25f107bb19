"""Topics of a running cluster get different partitions and a changed configuration."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.test_topic_deletion import directories
from integration.topics import (
    create_topic,
    new_name,
    partition_of,
    read_values,
    until_in_sync,
    write,
)
from integration.waiting import until, until_true
from integration.wire_client import WireClient, assert_rejected, wire_batch
from tidelog.client import Admin, Consumer, Producer
from tidelog.client.partitioner import partition_for_key
from tidelog.errors import UnknownTopicError
from tidelog.model import TopicPartition
from tidelog.v1 import admin_pb2, errors_pb2
from tidelog_runtime.local.cluster import LocalCluster

TIMEOUT_MS = 20_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def controller(cluster: LocalCluster) -> AsyncIterator[WireClient]:
    active = await cluster.active_controller()
    assert active is not None
    async with WireClient(cluster.controller_address(active)) as client:
        yield client


async def test_added_partitions_accept_records_and_the_old_ones_keep_theirs(
    cluster: LocalCluster, controller: WireClient
) -> None:
    topic, value = new_name("sea"), uuid.uuid4().bytes
    await create_topic(cluster, topic, 1)
    await write(cluster, topic, [value])

    answer = await controller.admin.AddPartitions(
        admin_pb2.AddPartitionsRequest(topic=topic, partitions=3, timeout_ms=TIMEOUT_MS)
    )

    assert (answer.error.message, answer.added, list(answer.pending_brokers)) == ("", 2, [])
    described = await until_in_sync(cluster, topic, partitions=3)
    assert len(described.partitions) == 3
    assert value in await read_values(cluster, topic)
    leader = described.partitions[2].leader
    async with WireClient(cluster.broker_address(leader)) as broker:
        result = await broker.produce(topic, 2, wire_batch(b"swell"))
    assert not result.HasField("error")


async def test_removed_partitions_are_gone_from_every_disk_and_the_others_keep_their_records(
    cluster: LocalCluster, controller: WireClient
) -> None:
    topic, value = new_name("sea"), uuid.uuid4().bytes
    await create_topic(cluster, topic, 1)
    await write(cluster, topic, [value])
    add = admin_pb2.AddPartitionsRequest(topic=topic, partitions=3, timeout_ms=TIMEOUT_MS)
    await controller.admin.AddPartitions(add)
    await until_in_sync(cluster, topic)

    request = admin_pb2.RemovePartitionsRequest(topic=topic, partitions=1, timeout_ms=TIMEOUT_MS)
    rejected = await controller.admin.RemovePartitions(request)
    request.confirm_topic = topic
    answer = await controller.admin.RemovePartitions(request)

    assert_rejected(
        rejected.error, errors_pb2.ERROR_CODE_NOT_CONFIRMED, topic, "as the confirmation"
    )
    assert (answer.error.message, answer.removed, list(answer.pending_brokers)) == ("", 2, [])
    assert await read_values(cluster, topic) == [value]
    await until_true(
        lambda: all(
            len(directories(cluster, b, "replicas", topic)) == 1
            and not directories(cluster, b, "strays", topic)
            for b in cluster.broker_ids
        ),
        f"one partition of {topic} is left on every disk",
    )


async def test_keys_of_a_running_producer_map_to_the_remaining_partitions(
    cluster: LocalCluster, controller: WireClient
) -> None:
    topic = new_name("sea")
    await create_topic(cluster, topic, 4)
    keys = [f"key-{number}".encode() for number in range(40)]
    async with Producer(cluster.bootstrap, delivery_timeout_ms=3_000) as producer:
        sent = [await producer.send(topic, b"before", key=key) for key in keys]
        await asyncio.gather(*sent)
        await controller.admin.RemovePartitions(
            admin_pb2.RemovePartitionsRequest(
                topic=topic, partitions=1, confirm_topic=topic, timeout_ms=TIMEOUT_MS
            )
        )

        async def all_are_taken() -> bool:
            """Not before it has learned of the removal from a broker that rejected its request."""
            sent = [await producer.send(topic, b"after", key=key) for key in keys]
            answers = await asyncio.gather(*sent, return_exceptions=True)
            return not any(isinstance(answer, BaseException) for answer in answers)

        await until(all_are_taken, f"every key of {topic} has a partition")


async def test_a_partition_that_reuses_a_number_begins_empty_even_on_a_broker_that_was_away(
    cluster: LocalCluster, controller: WireClient
) -> None:
    topic = new_name("sea")
    await create_topic(cluster, topic, 2)
    await write(cluster, topic, [uuid.uuid4().bytes for _ in range(20)])
    away = 3
    await cluster.kill(away)
    await controller.admin.RemovePartitions(
        admin_pb2.RemovePartitionsRequest(
            topic=topic, partitions=1, confirm_topic=topic, timeout_ms=TIMEOUT_MS
        )
    )
    kept = await read_values(cluster, topic)
    cluster.start_broker(away)

    async def add() -> bool:
        """Rejected while there are two brokers for three replicas."""
        request = admin_pb2.AddPartitionsRequest(topic=topic, partitions=2, timeout_ms=TIMEOUT_MS)
        return not (await controller.admin.AddPartitions(request)).HasField("error")

    await until(add, f"{topic} has a second partition again")
    await until_in_sync(cluster, topic)
    assert set(await read_values(cluster, topic)) == set(kept)


@pytest.mark.rule("partitions-added-and-removed")
async def test_a_consumer_reads_new_records_after_its_partition_was_removed_and_added(
    cluster: LocalCluster, controller: WireClient
) -> None:
    """The consumer knows the leader epochs of the removed partition, and ignores older state."""
    topic = new_name("sea")
    name = TopicPartition(topic, 1)
    described = await create_topic(cluster, topic, 2)
    async with Admin(cluster.bootstrap) as admin:
        for broker in (*described.partitions[1].replicas[1:], described.partitions[1].leader):
            await admin.move_leaders({name: broker})
    former, new = ([b"%s %d" % (life, n) for n in range(20)] for life in (b"former", b"new"))
    async with Consumer(cluster.bootstrap, on_out_of_range="earliest") as consumer:
        consumer.assign([name])
        values: list[bytes | None] = []

        async def are_read(expected: list[bytes]) -> bool:
            values.extend(record.value for record in await consumer.poll())
            return values == expected

        await write(cluster, topic, former, partition=1)
        await until(lambda: are_read(former), "the former partition is read")
        newest = (await partition_of(cluster, topic, 1)).leader_epoch
        await controller.admin.RemovePartitions(
            admin_pb2.RemovePartitionsRequest(
                topic=topic, partitions=1, confirm_topic=topic, timeout_ms=TIMEOUT_MS
            )
        )
        add = admin_pb2.AddPartitionsRequest(topic=topic, partitions=2, timeout_ms=TIMEOUT_MS)
        await controller.admin.AddPartitions(add)
        await until_in_sync(cluster, topic)
        await write(cluster, topic, new, partition=1)
        values.clear()
        await until(lambda: are_read(new), "the new partition is read")
    assert (await partition_of(cluster, topic, 1)).leader_epoch > newest


async def test_a_changed_configuration_takes_effect_without_a_restart(
    cluster: LocalCluster, controller: WireClient
) -> None:
    topic = new_name("sea")
    described = await create_topic(cluster, topic)
    pids = [process.pid for process in cluster.processes()]

    answer = await controller.admin.AlterTopicConfig(
        admin_pb2.AlterTopicConfigRequest(
            topic=topic,
            set={"max_batch_bytes": "1024", "min_insync_replicas": "3"},
            timeout_ms=TIMEOUT_MS,
        )
    )

    assert answer.error.message == ""
    assert [(c.key, c.before, c.after) for c in answer.changes] == [
        ("max_batch_bytes", "1048576", "1024"),
        ("min_insync_replicas", "", "3"),
    ]
    leader = described.partitions[0].leader
    async with WireClient(cluster.broker_address(leader)) as broker:

        async def check() -> bool:
            result = await broker.produce(topic, 0, wire_batch(b"x" * 4096))
            return result.error.code == errors_pb2.ERROR_CODE_BATCH_TOO_LARGE

        await until(check, "the leader rejects a batch that is too large now")

    async def is_known() -> bool:
        """Whichever broker is asked."""
        return (await partition_of(cluster, topic)).min_isr == 3

    await until(is_known, "three have to be in sync")
    assert [process.pid for process in cluster.processes()] == pids


async def test_running_clients_notice_partitions_that_come_and_go_and_a_topic_that_is_deleted(
    cluster: LocalCluster,
) -> None:
    topic, age_ms = new_name("tide"), 300
    keys = [b"key-%d" % number for number in range(32)]
    async with (
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap, metadata_max_age_ms=age_ms) as producer,
        Consumer(cluster.bootstrap, metadata_max_age_ms=age_ms) as consumer,
    ):
        await admin.create_topic(topic, 2)
        await (await producer.send(topic, b"first", key=keys[0]))
        await consumer.assign_topic(topic, start="latest")
        await admin.add_partitions(topic, 4)

        async def both_know() -> bool:
            known = len(await consumer.partitions_of(topic)), await producer.partitions_of(topic)
            return known == (4, 4)

        await until(both_know, "both clients know of four partitions")
        sent = [await (await producer.send(topic, b"x", key=key)) for key in keys]
        assert [s.partition for s in sent] == [partition_for_key(key, 4) for key in keys]
        added, read = {s.partition for s in sent} - {0, 1}, set[int]()
        async with asyncio.timeout(20):
            while not added <= read:
                read |= {record.partition for record in await consumer.poll(500)}

        await admin.remove_partitions(topic, 1, confirm_topic=topic)
        async with asyncio.timeout(5):
            with pytest.raises(UnknownTopicError, match="partition 3 of topic"):
                await (await producer.send(topic, b"x", partition=3))
            assert (await (await producer.send(topic, b"without a key"))).partition == 0
            with pytest.raises(UnknownTopicError):
                await _read_on(consumer)

        consumer.assign([(topic, 0)])
        await admin.delete_topic(topic)
        async with asyncio.timeout(5):
            with pytest.raises(UnknownTopicError, match=f"topic '{topic}' does not exist"):
                await (await producer.send(topic, b"x"))
            with pytest.raises(UnknownTopicError):
                await _read_on(consumer)


async def test_a_command_that_follows_a_topic_reads_added_partitions(
    cluster: LocalCluster,
) -> None:
    topic = new_name("followed")
    await create_topic(cluster, topic, 1)
    await write(cluster, topic, [b"before"])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidelog.cli", "consume", topic, "--follow", "--json"),
        *("--bootstrap", cluster.bootstrap),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60), Admin(cluster.bootstrap) as admin:
            # It follows already.
            assert await _printed(process.stdout) == (0, "before")
            await admin.add_partitions(topic, 2)
            await write(cluster, topic, [b"added"], partition=1)
            assert await _printed(process.stdout) == (1, "added")
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _printed(output: asyncio.StreamReader) -> tuple[int, str]:
    """Partition and value of the next record that the command prints."""
    record = json.loads(await output.readline())
    return record["partition"], record["value"]


async def _read_on(consumer: Consumer) -> None:
    while True:
        await consumer.poll(500)
