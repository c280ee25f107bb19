"""A consumer continues where another one has ended, perhaps long ago, and gets an error if the log
is no longer the one that was read.
"""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.client import Consumer, LogTruncatedError
from tidelog.client.fetch_codec import FoundOffset
from tidelog.client.record_epochs import RecordEpoch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, OffsetPosition
from unit.client.fake_broker import FakeCluster
from unit.client.test_consumer import FAST, SEA, fill, read

ID = "id-of-sea"


def offsets_asked(cluster: FakeCluster) -> list[int]:
    requests: list[Any] = [r for b in cluster.brokers.values() for r in b.seen["fetch"]]
    return [asked.fetch_offset for request in requests for asked in request.partitions]


async def test_with_the_same_leader_nothing_is_compared(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 30)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        await consumer.resume(SEA, 20, topic_id=ID, read_epoch=1)
        assert [r.offset for r in await read(consumer, 10)] == list(range(20, 30))
    assert 19 not in offsets_asked(cluster)


async def test_a_new_leader_returns_the_previous_record_for_comparison(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 30)
    cluster.elect("sea", 0, leader=1)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        await consumer.resume(SEA, 20, topic_id=ID, read_epoch=1)
        assert (await read(consumer, 1))[0].offset == 20
    assert offsets_asked(cluster)[0] == 19


async def test_a_truncated_log_is_an_error(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.elect_uncleanly("sea", 0, leader=1, end=10)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        await consumer.resume(SEA, 20, topic_id=ID, read_epoch=1)
        with pytest.raises(LogTruncatedError) as raised:
            await consumer.poll(5000)
    assert (raised.value.offset, raised.value.read_epoch, raised.value.leader_epoch) == (20, 1, 2)


@pytest.mark.rule("stream-offsets-detect-losses")
async def test_a_truncated_log_that_has_grown_again_is_an_error_too(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.elect_uncleanly("sea", 0, leader=1, end=10)
    fill(cluster, 30)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        await consumer.resume(SEA, 20, topic_id=ID, read_epoch=1)
        with pytest.raises(LogTruncatedError):
            await consumer.poll(5000)


async def test_records_that_were_read_may_be_deleted(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.elect("sea", 0, leader=1)
    cluster.partition("sea").log_start = 20
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        await consumer.resume(SEA, 20, topic_id=ID, read_epoch=1)
        assert (await read(consumer, 1))[0].offset == 20


async def test_another_topic_of_the_name_is_an_error(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.create("sea", [1])
    fill(cluster, 30)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        await consumer.resume(SEA, 20, topic_id=ID)
        with pytest.raises(TidelogError, match="deleted and created again") as raised:
            await consumer.poll(5000)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_ID


async def test_nothing_beyond_the_end_offset_is_fetched(cluster: FakeCluster) -> None:
    fill(cluster, 10_000)
    async with Consumer(cluster.bootstrap(), **FAST, max_bytes=100) as consumer:
        await consumer.resume(SEA, 20, topic_id=ID, end_offset=35)
        assert [r.offset for r in await read(consumer, 20)] == list(range(20, 40))
        assert await consumer.poll(200) == []
    assert max(offsets_asked(cluster)) < 35


async def test_the_epoch_of_a_record_is_read_from_the_current_leader(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    cluster.elect("sea", 0, leader=1)
    fill(cluster, 10)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        assert (await consumer.record_epochs({SEA: 9}))[SEA] == RecordEpoch(1, 2, ID, 0, 20)
        assert (await consumer.record_epochs({SEA: 10}))[SEA].record_epoch == 2
        assert (await consumer.record_epochs({SEA: 20}))[SEA].record_epoch == NO_EPOCH
        assert (await consumer.record_epochs({SEA: 99}))[SEA].record_epoch == NO_EPOCH


async def test_the_epoch_of_a_damaged_record_is_unknown(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    cluster.partition("sea").damaged = [(5, 10)]
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        raised = await consumer.record_epochs({SEA: 7})
    assert raised[SEA] == RecordEpoch(NO_EPOCH, 1, ID, 0, 10, damaged=True)


async def test_offsets_come_with_epoch_and_topic_id(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    cluster.elect("sea", 0, leader=1)
    async with Consumer(cluster.bootstrap(), **FAST) as consumer:
        raised = await consumer.offsets_with_epochs(OffsetPosition.LATEST, [SEA])
    assert raised == {SEA: FoundOffset(10, 2, ID)}
