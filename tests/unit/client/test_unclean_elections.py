"""Committed records are lost: clients get an error, and skip nothing."""

import asyncio
import logging

import pytest

from tidelog.batch import stamp
from tidelog.client import Consumer, LogTruncatedError, UncleanElection
from tidelog.client.retry import Leader
from tidelog.client.unclean_elections import UncleanElections
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.record_batch import encode
from tidelog.v1 import broker_pb2
from unit.client.idempotent_world import World, milliseconds, story
from unit.client.test_idempotent_producer import outcome, send

SEA = TopicPartition("sea", 0)


def append(world: World, *values: bytes, partition: int = 0) -> None:
    """Appends each value as a batch of its own."""
    log = world.cluster.partition("sea", partition)
    for value in values:
        batch = encode([value], timestamps_ms=1)
        log.batches.append(
            stamp(batch, base_offset=log.end, leader_epoch=log.leader_epoch, append_time_ms=1)
        )


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    records: list[bytes | None] = []
    while len(records) < count:
        got = await consumer.poll(10_000)
        assert got, f"only {len(records)} of {count} records came"
        records += [record.value for record in got]
    return records


@story
async def test_a_new_leader_is_asked_for_the_last_batch_again_and_reading_continues(
    world: World,
) -> None:
    append(world, b"0", b"1", b"2")
    async with world.consumer() as consumer:
        consumer.assign([SEA])
        assert await read(consumer, 3) == [b"0", b"1", b"2"]
        world.cluster.elect("sea", 0, leader=1)
        append(world, b"3")
        assert await read(consumer, 1) == [b"3"]
        offsets = [
            r.partitions[0].fetch_offset  # type: ignore[attr-defined]
            for r in world.cluster.brokers[1].seen["fetch"]
        ]
        assert offsets[0] == 2
        assert 2 not in offsets[1:]


@pytest.mark.rule("unclean-elections-are-marked")
@story
async def test_a_log_that_has_grown_beyond_a_truncation_is_not_read_further(world: World) -> None:
    append(world, b"0", b"1", b"2")
    async with world.consumer() as consumer:
        consumer.assign([SEA])
        await read(consumer, 3)
        world.cluster.elect_uncleanly("sea", 0, leader=1, end=1)
        append(world, b"x", b"y", b"z")
        with pytest.raises(LogTruncatedError, match="truncated below offset 3") as caught:
            await consumer.poll(10_000)
        assert (caught.value.offset, caught.value.read_epoch, caught.value.leader_epoch) == (
            3,
            1,
            2,
        )
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await consumer.seek(SEA, 1)
        assert await read(consumer, 3) == [b"x", b"y", b"z"]


@story
async def test_a_log_that_ends_below_the_position_is_truncated(world: World) -> None:
    append(world, b"0", b"1", b"2")
    async with world.consumer() as consumer:
        consumer.assign([SEA])
        await read(consumer, 3)
        world.cluster.elect_uncleanly("sea", 0, leader=1, end=1)
        with pytest.raises(LogTruncatedError):
            await consumer.poll(10_000)


@story
async def test_after_a_truncation_the_reset_policy_applies(world: World) -> None:
    append(world, b"0", b"1", b"2")
    async with world.consumer(on_out_of_range="earliest") as consumer:
        consumer.assign([SEA])
        await read(consumer, 3)
        world.cluster.elect_uncleanly("sea", 0, leader=1, end=1)
        append(world, b"x", b"y", b"z")
        assert await read(consumer, 4) == [b"0", b"x", b"y", b"z"]
        await milliseconds(500)


def test_a_truncation_handled_by_a_policy_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    test_after_a_truncation_the_reset_policy_applies()
    reported = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len([message for message in reported if "truncated below offset 3" in message]) == 1
    assert len([message for message in reported if "unclean election of sea/0" in message]) == 1


@story
async def test_a_producer_reports_an_unclean_election_even_if_its_leader_leads_again(
    world: World,
) -> None:
    reported: list[UncleanElection] = []
    async with world.producer(on_unclean_election=reported.append) as producer:
        await (await producer.send("sea", b"0"))
        world.cluster.elect_uncleanly("sea", 0, leader=0, end=1)
        await (await producer.send("sea", b"1"))
        await milliseconds(500)
    assert [election.leader_epoch for election in reported] == [2]


@story
async def test_a_producer_reports_an_unclean_election_even_if_the_first_broker_is_behind(
    world: World,
) -> None:
    reported: list[UncleanElection] = []
    async with world.producer(on_unclean_election=reported.append) as producer:
        await (await producer.send("sea", b"0"))
        stale = world.broker.metadata(broker_pb2.MetadataRequest(topics=["sea"]))
        for broker in world.cluster.brokers.values():
            broker.metadata_of = lambda: stale
        world.cluster.elect_uncleanly("sea", 0, leader=1, end=1)
        await (await producer.send("sea", b"1"))
        await milliseconds(500)
        assert reported == []
        for broker in world.cluster.brokers.values():
            broker.metadata_of = None
        await (await producer.send("sea", b"2"))
        await milliseconds(500)
    assert [election.leader_epoch for election in reported] == [2]


@story
async def test_records_that_are_no_longer_retained_are_not_compared(world: World) -> None:
    append(world, b"0", b"1", b"2")
    async with world.consumer() as consumer:
        consumer.assign([SEA])
        await read(consumer, 3)
        world.cluster.elect("sea", 0, leader=1)
        world.sea.log_start = 3
        append(world, b"3")
        assert await read(consumer, 1) == [b"3"]


@story
async def test_a_leader_that_returns_nothing_yet_is_asked_again(world: World) -> None:
    append(world, b"0", b"1", b"2")
    async with world.consumer() as consumer:
        consumer.assign([SEA])
        await read(consumer, 3)
        world.cluster.elect("sea", 0, leader=1)
        hidden = world.sea.batches.pop()
        assert await consumer.poll(3000) == []
        world.sea.batches.append(hidden)
        append(world, b"3")
        assert await read(consumer, 1) == [b"3"]


@story
async def test_a_reader_abandons_a_hanging_leader_for_a_newer_one(world: World) -> None:
    append(world, b"0")
    async with world.consumer() as consumer:
        consumer.assign([SEA])
        await read(consumer, 1)
        world.broker.gate.clear()
        await milliseconds(600)
        world.cluster.elect("sea", 0, leader=1)
        append(world, b"1")
        began = asyncio.get_running_loop().time()
        assert await read(consumer, 1) == [b"1"]
        assert asyncio.get_running_loop().time() - began < 2.5
        world.broker.gate.set()


@pytest.mark.rule("unclean-elections-are-marked")
@story
async def test_a_reader_reports_an_unclean_election_once(world: World) -> None:
    reported: list[UncleanElection] = []
    append(world, b"0", b"1")
    async with world.consumer(on_unclean_election=reported.append) as consumer:
        consumer.assign([SEA])
        await read(consumer, 2)
        world.cluster.elect_uncleanly("sea", 0, leader=1, end=2)
        append(world, b"2")
        await read(consumer, 1)
        await milliseconds(500)
        world.cluster.elect("sea", 0, leader=0)
        append(world, b"3")
        await read(consumer, 1)
    assert reported == [UncleanElection(SEA, 2, 2, 1)]


@story
async def test_a_writer_reports_an_unclean_election_once(world: World) -> None:
    reported: list[UncleanElection] = []
    async with world.producer(on_unclean_election=reported.append) as producer:
        await asyncio.gather(*await send(producer, 3))
        world.cluster.elect_uncleanly("sea", 0, leader=1, end=1)
        assert await outcome((await send(producer, 1))[0]) == 1
        await milliseconds(500)
    assert reported == [UncleanElection(SEA, 2, 3, 1)]


@story
async def test_a_writer_that_begins_after_an_unclean_election_does_not_report_it(
    world: World,
) -> None:
    reported: list[UncleanElection] = []
    world.cluster.elect_uncleanly("sea", 0, leader=1, end=0)
    async with world.producer(on_unclean_election=reported.append) as producer:
        assert not isinstance(await outcome((await send(producer, 1))[0]), TidelogError)
    assert reported == []


def test_positions_reached_after_the_election_do_not_hide_it() -> None:
    elections = UncleanElections()
    elections.reached(SEA, "id", 4, 10)
    elections.reached(SEA, "id", 5, 8)
    leader = Leader(1, 5, "one:1", "id", unclean_leader_epoch=5)
    assert elections.new_elections(lambda _: leader) == [UncleanElection(SEA, 5, 10, 4)]
    assert elections.new_elections(lambda _: leader) == []
