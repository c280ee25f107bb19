import asyncio

import pytest

from tidelog import record_batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks, Batch, OffsetPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.requests.list_offsets import (
    LARGE_BATCH_BYTES,
    PAUSE_S_PER_BYTE,
    FoundOffset,
    ListOffsets,
    ListOffsetsEntry,
)
from unit.broker.broker_parts import Replicas, commit, fetch_by, in_place
from unit.broker.fake_log import NAME, state


def timestamps_of(batch: Batch) -> list[int]:
    return record_batch.decode(batch).timestamps_ms


async def find(
    replicas: Replicas,
    where: OffsetPosition,
    *,
    timestamp_ms: int = 0,
    known_epoch: int = -1,
) -> FoundOffset:
    entry = ListOffsetsEntry(NAME, "", known_epoch, where, timestamp_ms)
    requests = ListOffsets(replicas.manager, timestamps_of, replicas.cold_reads, in_place)
    return await requests.handle(entry)


def append_at(partition: Partition, *timestamps_ms: int) -> None:
    """Append one batch with a record for each time."""
    batch = record_batch.encode([b"v"] * len(timestamps_ms), timestamps_ms=timestamps_ms)
    partition.append([batch], Acks.LEADER, 1)


async def with_two_batches() -> Replicas:
    replicas = Replicas()
    partition = await replicas.lead()
    append_at(partition, 10, 20)
    append_at(partition, 30, 40)
    fetch_by(partition, 2)
    fetch_by(partition, 3)
    return replicas


async def test_the_earliest_offset_is_the_log_start() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    partition.log.reset_to(7)
    assert await find(replicas, OffsetPosition.EARLIEST) == (7, -1, 5)


async def test_the_latest_offset_is_the_high_watermark_and_not_the_log_end() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    commit(partition)
    append_at(partition, 5)
    assert await find(replicas, OffsetPosition.LATEST) == (1, -1, 5)


async def test_a_search_by_time_finds_the_first_record_that_is_not_older() -> None:
    replicas = await with_two_batches()
    found = [
        (await find(replicas, OffsetPosition.TIMESTAMP, timestamp_ms=t))[:2]
        for t in (0, 10, 11, 21, 40)
    ]
    assert found == [(0, 10), (0, 10), (1, 20), (2, 30), (3, 40)]


async def test_a_search_for_a_later_time_finds_nothing() -> None:
    replicas = await with_two_batches()
    assert await find(replicas, OffsetPosition.TIMESTAMP, timestamp_ms=41) == (-1, -1, 5)


async def test_a_search_by_time_finds_nothing_uncommitted() -> None:
    replicas = Replicas()
    append_at(await replicas.lead(), 10)
    assert (await find(replicas, OffsetPosition.TIMESTAMP, timestamp_ms=0)).offset == -1


@pytest.mark.parametrize("where", list(OffsetPosition))
async def test_a_client_of_a_newer_epoch_is_not_served_by_a_zombie(where: OffsetPosition) -> None:
    replicas = await with_two_batches()
    with pytest.raises(TidelogError) as raised:
        await find(replicas, where, known_epoch=6)
    assert raised.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.rule("end-reported-after-epoch-start")
async def test_a_new_leader_does_not_return_the_end_before_it_knows_the_committed_end() -> None:
    replicas = await with_two_batches()
    append_at(next(iter(replicas.manager.all())), 50)
    await replicas.take(state(epoch=6), revision=11)
    with pytest.raises(TidelogError) as raised:
        await find(replicas, OffsetPosition.LATEST)
    assert raised.value.code is ErrorCode.OFFSET_NOT_AVAILABLE


async def test_a_partition_led_elsewhere_is_rejected() -> None:
    with pytest.raises(TidelogError) as raised:
        await find(Replicas(), OffsetPosition.EARLIEST)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_searches_of_large_batches_run_one_at_a_time_with_pauses() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    size = LARGE_BATCH_BYTES + 1
    partition.append([record_batch.encode([bytes(size)], timestamps_ms=10)], Acks.LEADER, 1)
    fetch_by(partition, 2)
    fetch_by(partition, 3)
    search = ListOffsets(replicas.manager, timestamps_of, replicas.cold_reads, in_place)
    entry = ListOffsetsEntry(NAME, "", -1, OffsetPosition.TIMESTAMP, 0)
    began_s = asyncio.get_running_loop().time()
    found = await asyncio.gather(*(search.handle(entry) for _ in range(4)))
    assert [each.offset for each in found] == [0] * 4
    assert asyncio.get_running_loop().time() - began_s >= 4 * size * PAUSE_S_PER_BYTE
