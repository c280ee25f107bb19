import asyncio
from typing import Any

import grpc
import pytest

from tidelog.batch import stamp
from tidelog.client import Consumer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch, Codec, OffsetPosition, Record, TopicPartition
from tidelog.record_batch import encode
from unit.client.fake_broker import FakeCluster

SEA = TopicPartition("sea", 0)
FAST: dict[str, Any] = {"max_wait_ms": 50}


def fill(cluster: FakeCluster, count: int, *, topic: str = "sea", partition: int = 0) -> None:
    """Appends batches of ten records with the values 0 to count - 1, each at a time equal to its
    value.
    """
    log = cluster.partition(topic, partition)
    first = log.end
    for start in range(first, first + count, 10):
        numbers = range(start, min(start + 10, first + count))
        batch = encode(
            [b"%d" % n for n in numbers],
            [b"key-%d" % n for n in numbers],
            timestamps_ms=list(numbers),
            codec=list(Codec)[start // 10 % 4],
        )
        log.batches.append(
            stamp(batch, base_offset=start, leader_epoch=log.leader_epoch, append_time_ms=1)
        )


async def read(consumer: Consumer, count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        got = await consumer.poll(3000, count - len(records))
        assert got, f"only {len(records)} of {count} records came"
        records += got
    return records


async def test_all_records_come_in_order(cluster: FakeCluster) -> None:
    fill(cluster, 95)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        assert await consumer.assign_topic("sea") == [SEA]
        records = await read(consumer, 95)
        assert await consumer.poll(20) == []
        assert consumer.position(SEA) == 95
    assert [r.offset for r in records] == list(range(95))
    assert records[12] == ("sea", 0, 12, 12, b"key-12", b"12", (), 1)


async def test_iterating_waits_for_later_records(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        asyncio.get_running_loop().call_later(0.05, fill, cluster, 15)
        offsets = []
        async for record in consumer:
            offsets.append(record.offset)
            assert consumer.position(SEA) == record.offset + 1
            if len(offsets) == 15:
                break
    assert offsets == list(range(15))


@pytest.mark.parametrize("steps", range(5))
async def test_a_poll_can_be_cancelled_at_the_moment_when_records_arrive(
    cluster: FakeCluster, steps: int
) -> None:
    async def read_on(consumer: Consumer) -> None:
        while True:
            await consumer.poll(1_000)

    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        reading = asyncio.create_task(read_on(consumer))
        await asyncio.sleep(0.02)
        consumer._fetcher.arrived.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        reading.cancel()
        done, _ = await asyncio.wait({reading}, timeout=0.5)
        assert done
    assert reading.cancelled()


async def test_complete_batches_can_be_read_and_mixed_with_records(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        assert len(await consumer.poll(1000, max_records=3)) == 3
        [batch] = await consumer.poll_batches(1000, max_batches=1)
        assert (batch.first_offset, batch.next_offset, batch.record_count) == (3, 10, 7)
        assert batch.columns().values == [b"%d" % n for n in range(3, 10)]
        assert [r.offset for r in batch.records()] == list(range(3, 10))
        assert consumer.position(SEA) == 10
        assert (await consumer.poll(1000, 1))[0].offset == 10


async def test_seeking_into_a_batch_skips_earlier_records(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        await read(consumer, 5)
        await consumer.seek(SEA, 17)
        assert [r.offset for r in await read(consumer, 4)] == [17, 18, 19, 20]
        await consumer.seek(SEA, 2)
        assert (await read(consumer, 1))[0].offset == 2


async def test_seeking_by_time_beginning_and_end(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA], start=OffsetPosition.LATEST)
        await consumer.seek_to_time(11)
        assert consumer.position(SEA) == 10
        await consumer.seek_to_time(99)
        assert consumer.position(SEA) == 30
        await consumer.seek_to_beginning()
        assert consumer.position(SEA) == 0
        await consumer.seek_to_end([SEA])
        assert consumer.position(SEA) == 30
        assert await consumer.end_offsets([("sea", 0)]) == {SEA: 30}
        assert await consumer.beginning_offsets([SEA]) == {SEA: 0}
        fill(cluster, 3)
        assert [r.offset for r in await read(consumer, 3)] == [30, 31, 32]


async def test_the_leader_is_followed_when_it_moves(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        await read(consumer, 10)
        cluster.elect("sea", 0, leader=1)
        fill(cluster, 10)
        records = await read(consumer, 10)
        assert [r.offset for r in records] == list(range(10, 20))
        assert records[0].leader_epoch == 2


@pytest.mark.rule("clients-find-moved-leaders")
async def test_the_leader_is_followed_when_it_dies(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        await read(consumer, 10)
        await cluster.brokers[0].close()
        fill(cluster, 10)
        assert await consumer.poll(200) == []
        cluster.elect("sea", 0, leader=2)
        assert [r.offset for r in await read(consumer, 10)] == list(range(10, 20))


@pytest.mark.parametrize(
    "trouble",
    [
        TidelogError(ErrorCode.OFFSET_NOT_AVAILABLE, "not yet"),
        TidelogError(ErrorCode.FENCED_LEADER_EPOCH, "old epoch"),
        TidelogError(ErrorCode.UNKNOWN_LEADER_EPOCH, "new epoch"),
        TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not known here yet"),
        grpc.StatusCode.UNAVAILABLE,
    ],
)
async def test_retriable_errors_are_retried(cluster: FakeCluster, trouble: Any) -> None:
    fill(cluster, 10)
    cluster.brokers[0].script["fetch"].extend([trouble, trouble])
    cluster.brokers[0].script["list_offsets"].append(
        TidelogError(ErrorCode.NOT_LEADER, "not the leader")
    )
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        assert len(await read(consumer, 10)) == 10


async def test_a_partition_without_a_leader_does_not_block_others(
    cluster: FakeCluster,
) -> None:
    cluster.create("bay", [-1, 0])
    fill(cluster, 10, topic="bay", partition=1)
    async with Consumer(cluster.bootstrap(), offsets_timeout_ms=60_000, **FAST) as consumer:
        await consumer.assign_topic("bay")
        assert {record.partition for record in await read(consumer, 10)} == {1}
        cluster.elect("bay", 0, 1)
        fill(cluster, 10, topic="bay", partition=0)
        assert {record.partition for record in await read(consumer, 10)} == {0}


async def test_only_a_partition_without_a_leader_reports_that(
    cluster: FakeCluster,
) -> None:
    cluster.create("bay", [-1, 0])
    async with Consumer(cluster.bootstrap(), offsets_timeout_ms=200, **FAST) as consumer:
        await consumer.assign_topic("bay")
        with pytest.raises(TidelogError, match="offsets of bay/0 within") as caught:
            await consumer.poll(3000)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        fill(cluster, 10, topic="bay", partition=1)
        assert {record.partition for record in await read_despite(consumer, 10)} == {1}


async def read_despite(consumer: Consumer, count: int) -> list[Record]:
    """Reads on after errors of partitions that cannot be read."""
    records: list[Record] = []
    async with asyncio.timeout(10):
        while len(records) < count:
            try:
                records += await consumer.poll(1000)
            except TidelogError:
                await asyncio.sleep(0.01)
    return records


async def test_only_a_missing_partition_is_reported_as_missing(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA, ("sea", 7), ("nowhere", 0)])
        assert len(await read_despite(consumer, 10)) == 10
        with pytest.raises(TidelogError, match="partition 7 of topic") as caught:
            await consumer.poll(3000)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_out_of_range_is_an_error_that_names_the_range(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.partition("sea").log_start = 10
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        await consumer.seek(SEA, 99)
        for _ in range(2):
            with pytest.raises(TidelogError, match=r"offset 99 .* offsets 10 to 30") as caught:
                await consumer.poll(3000)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await consumer.seek(SEA, 10)
        assert (await read(consumer, 1))[0].offset == 10


@pytest.mark.parametrize(("policy", "offset"), [("earliest", 10), ("latest", 30)])
async def test_out_of_range_may_reset(cluster: FakeCluster, policy: str, offset: int) -> None:
    fill(cluster, 30)
    cluster.partition("sea").log_start = 10
    async with Consumer(cluster.bootstrap(), on_out_of_range=policy, **FAST) as consumer:
        consumer.assign([SEA])
        await consumer.seek(SEA, 3)
        asyncio.get_running_loop().call_later(0.3, fill, cluster, 5)
        assert (await read(consumer, 1))[0].offset == offset


async def test_a_damaged_batch_is_never_returned(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    batches = cluster.partition("sea").batches
    sound = batches[1]
    batches[1] = Batch(sound.header, sound.records[:-1] + bytes([sound.records[-1] ^ 1]))
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        assert [r.offset for r in await read(consumer, 10)] == list(range(10))
        with pytest.raises(TidelogError, match="offset 10 of sea/0 fails its CRC32C") as caught:
            await consumer.poll(3000)
        assert caught.value.code is ErrorCode.CORRUPT_BATCH
        batches[1] = sound
        await consumer.seek(SEA, 10)
        assert (await read(consumer, 1))[0].offset == 10


async def test_the_prefetch_buffer_is_bounded(cluster: FakeCluster) -> None:
    log = cluster.partition("sea")
    for number in range(50):
        batch = encode([bytes(1000)], timestamps_ms=1)
        log.batches.append(stamp(batch, base_offset=number, leader_epoch=1, append_time_ms=1))
    async with Consumer(cluster.bootstrap(), prefetch_bytes=5000, **FAST) as consumer:
        consumer.assign([SEA])
        await consumer.poll(1000, 1)
        await asyncio.sleep(0.1)
        assert consumer.buffered_bytes <= 5000
        assert len(await read(consumer, 49)) == 49


async def test_partitions_are_read_in_turn(cluster: FakeCluster) -> None:
    cluster.create("wide", [0, 1, 2])
    for partition in range(3):
        fill(cluster, 100, topic="wide", partition=partition)
    async with Consumer(cluster.bootstrap(), prefetch_bytes=600, **FAST) as consumer:
        await consumer.assign_topic("wide")
        records = await read(consumer, 300)
    for partition in range(3):
        assert [r.offset for r in records if r.partition == partition] == list(range(100))
    assert {r.partition for r in records[:100]} == {0, 1, 2}


async def test_an_unknown_topic_is_an_error(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        with pytest.raises(TidelogError, match="does not exist"):
            await consumer.assign_topic("nowhere")
        consumer.assign([("sea", 7)])
        with pytest.raises(TidelogError, match="partitions are 0 to 0"):
            await consumer.poll(3000)
        with pytest.raises(TidelogError, match="not assigned"):
            consumer.position(("sea", 1))
        with pytest.raises(TidelogError, match="offsets begin at 0"):
            await consumer.seek(("sea", 7), -1)


async def test_a_recreated_topic_is_an_error(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        consumer.assign([SEA])
        await read(consumer, 10)
        cluster.create("sea", [1])
        with pytest.raises(TidelogError, match="deleted and created again"):
            await consumer.poll(3000)


async def test_a_closed_consumer_raises_an_error(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster.bootstrap(), **FAST)
    consumer.assign([SEA])
    await consumer.close()
    with pytest.raises(TidelogError, match="closed"):
        await consumer.poll(10)
