"""The clients in other languages, side by side with the Python one on one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from examples.programs import Line, Program, running
from integration.topics import (
    create_topic,
    new_name,
    partition_of,
    until_in_sync,
    until_led_by_another,
)
from integration.waiting import until
from tidelog.client import Consumer, Producer
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.client.partitioner import partition_for_key
from tidelog.model import Codec, Record
from tidelog_runtime.local.cluster import LocalCluster

PARTITIONS = 3
RECORDS = 3_000
# Enough records before, during and after the leader's death to be in several batches.
PORTION = 200
PAUSE_SECONDS = 0.01


async def batches_of(cluster: LocalCluster, topic: str) -> list[FetchedBatch]:
    """All committed batches. They are counted by offsets; a producer fence has one, too."""
    batches: list[FetchedBatch] = []
    async with Consumer(cluster.bootstrap) as consumer:
        await consumer.assign_topic(topic)
        ends = await consumer.end_offsets(consumer.assignment)

        async def check() -> bool:
            batches.extend(await consumer.poll_batches())
            return all((consumer.position(p) or 0) >= end for p, end in ends.items())

        await until(check, f"{topic} is read to its end")
    return batches


def records_of(batches: Sequence[FetchedBatch]) -> list[Record]:
    records = [record for batch in batches for record in batch.records()]
    return sorted(records, key=lambda record: (record.partition, record.offset))


def lines_of(records: Sequence[Record]) -> list[Line]:
    return [Line(r.partition, r.offset, r.key, r.value or b"") for r in records]


def in_order(lines: Sequence[Line]) -> list[Line]:
    """Ordered by partition; within one, lines stay as printed."""
    return sorted(lines, key=lambda line: line.partition)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
async def test_python_reads_the_records_of_the_example(
    cluster: LocalCluster, program: Program, codec: Codec
) -> None:
    topic = new_name(f"{program.language}-{codec.name.lower()}")
    await create_topic(cluster, topic, PARTITIONS)
    given = [(f"tide {n % 7}".encode(), f"wave {n}: höher".encode()) for n in range(RECORDS)]

    printed = await program.run(
        *("produce", topic, "--brokers", cluster.bootstrap),
        *("--compression", codec.name.lower()),
        given=b"".join(b"%b:%b\n" % record for record in given),
    )
    batches = await batches_of(cluster, topic)
    records = records_of(batches)

    assert in_order(printed) == lines_of(records)
    assert {batch.header.codec for batch in batches} == {codec}
    for partition in range(PARTITIONS):
        assert [(r.key, r.value) for r in records if r.partition == partition] == [
            (key, value) for key, value in given if partition_for_key(key, PARTITIONS) == partition
        ]


async def test_records_without_a_key_or_with_an_empty_value_are_unchanged(
    cluster: LocalCluster, program: Program
) -> None:
    topic = new_name(f"{program.language}-null")
    await create_topic(cluster, topic)

    await program.run(
        *("produce", topic, "--brokers", cluster.bootstrap),
        given=b"no key\nempty:\n:keyless\na:b:c\n",
    )

    assert [(r.key, r.value) for r in records_of(await batches_of(cluster, topic))] == [
        (None, b"no key"),
        (b"empty", b""),
        (b"", b"keyless"),
        (b"a", b"b:c"),
    ]


async def test_it_reads_every_codec_that_python_writes(
    cluster: LocalCluster, program: Program
) -> None:
    topic = new_name(f"{program.language}-read")
    await create_topic(cluster, topic, PARTITIONS)
    for codec in Codec:
        # Each later holder of the name appends a producer fence, which is no record of a user.
        async with Producer(
            cluster.bootstrap, codec=codec, producer_name=topic, batch_bytes=16 << 10
        ) as producer:
            keys = [None if n % 5 == 0 else f"key {n % 50}".encode() for n in range(RECORDS)]
            values = [f"{codec.name} {n} ".encode() * (n % 20) for n in range(RECORDS)]
            await (await producer.send_many(topic, values, keys))
            sent = await producer.send(topic, b"with a header", b"key", headers=[("a", b"b")])
            await sent

    printed = await program.run("consume", topic, "--brokers", cluster.bootstrap, "--until-end")
    batches = await batches_of(cluster, topic)

    assert {batch.header.codec for batch in batches} == set(Codec)
    assert len(printed) == len(Codec) * (RECORDS + 1)
    assert in_order(printed) == lines_of(records_of(batches))
    for partition in range(PARTITIONS):
        offsets = [line.offset for line in printed if line.partition == partition]
        assert len(offsets) < offsets[-1] + 1, "there is no fence to be skipped"


async def test_it_continues_after_its_leader_was_killed_and_nothing_is_lost(
    cluster: LocalCluster, program: Program
) -> None:
    topic = new_name(f"{program.language}-killed")
    before = (await create_topic(cluster, topic)).partitions[0]
    sent: list[str] = []

    def portion() -> list[str]:
        lines = [f"key:{len(sent) + n}" for n in range(PORTION)]
        sent.extend(lines)
        return lines

    at = ("--brokers", cluster.bootstrap)
    async with (
        running(program, "produce", topic, *at) as producer,
        running(program, "consume", topic, *at) as consumer,
    ):
        await producer.feed(portion())
        await producer.prints(len(sent))
        await consumer.prints(len(sent))
        killing = asyncio.create_task(cluster.kill(before.leader))
        while not killing.done():
            await producer.feed(portion())
            await asyncio.sleep(PAUSE_SECONDS)
        await killing
        await producer.feed(portion())
        await until_led_by_another(cluster, topic, before)
        await producer.feed(portion())
        await producer.prints(len(sent))
        status = await producer.end_of_input()
        await consumer.prints(len(sent))
    records = records_of(await batches_of(cluster, topic))
    after = await partition_of(cluster, topic)
    cluster.start_broker(before.leader)
    await cluster.ready()
    await until_in_sync(cluster, topic)

    assert status == 0
    assert after.leader_epoch > before.leader_epoch
    assert [f"key:{(r.value or b'').decode()}" for r in records] == sent
    assert consumer.lines == lines_of(records)
    assert [line.value for line in producer.lines] == [r.value for r in records]
    assert {line for line in producer.lines if line.offset >= 0} <= set(consumer.lines)


async def test_a_missing_topic_is_named(cluster: LocalCluster, program: Program) -> None:
    status, output, errors = await program.run_to_end(
        "consume", "no-such-topic", "--brokers", cluster.bootstrap, "--until-end"
    )

    assert (status, output) == (1, b"")
    assert "ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION" in errors
    assert "no-such-topic" in errors


async def test_unreachable_brokers_end_the_program(program: Program) -> None:
    status, output, errors = await program.run_to_end(
        "consume", "any", "--brokers", "127.0.0.1:1", "--until-end"
    )

    assert (status, output) == (1, b"")
    assert "127.0.0.1:1" in errors
