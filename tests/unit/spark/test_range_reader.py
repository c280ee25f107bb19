"""What a task reads of its range, over a fake cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog.batch import new_fence, stamp
from tidelog.client import fetch_state
from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, NO_EPOCH, TopicPartition
from tidelog.spark import arrow_batches, cluster_lookups, range_reader
from tidelog.spark.columns import chosen_columns, schema_of
from tidelog.spark.data_loss import DataLossError
from tidelog.spark.planning import OffsetRange
from tidelog.spark.stream_offsets import ReadTo
from tidelog.v1 import broker_pb2
from unit.client.fake_broker import FakeCluster
from unit.spark.lookups import fill

SEA = TopicPartition("sea", 0)
LONG_MS = 60_000
SCHEMA = to_arrow_schema(schema_of(chosen_columns(["offset"])), timezone="UTC")


def range_of(
    first: int, end: int, *, epoch: int = NO_EPOCH, end_epoch: int = NO_EPOCH
) -> OffsetRange:
    return OffsetRange(SEA, "id-of-sea", 1, ReadTo(first, epoch), ReadTo(end, end_epoch))


def batches(
    cluster: FakeCluster,
    requested: OffsetRange,
    *,
    fail_on_data_loss: bool = True,
    skip_damaged: bool = False,
) -> list[pa.RecordBatch]:
    return list(
        range_reader.read_range(
            ",".join(cluster.bootstrap()),
            requested,
            SCHEMA,
            buffer_bytes=1000,
            fail_on_data_loss=fail_on_data_loss,
            skip_damaged=skip_damaged,
        )
    )


async def offsets(cluster: FakeCluster, requested: OffsetRange, **how: bool) -> list[int]:
    found = await asyncio.to_thread(lambda: batches(cluster, requested, **how))
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


async def test_exactly_the_range_is_read(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    assert await offsets(cluster, range_of(7, 18)) == list(range(7, 18))


async def test_the_size_of_a_result_batch_is_bounded(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_batches, "BATCH_RECORDS", 10)
    fill(cluster, 30)
    found = await asyncio.to_thread(batches, cluster, range_of(0, 30))
    assert [batch.num_rows for batch in found] == [10, 10, 10]


async def test_a_range_may_end_with_offsets_without_a_record(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    fence = stamp(
        new_fence(FIRST_NAMED_PRODUCER_ID, 1, 1), base_offset=10, leader_epoch=1, append_time_ms=1
    )
    cluster.partition("sea").batches.append(fence)
    assert await offsets(cluster, range_of(5, 11)) == list(range(5, 10))


async def test_a_change_of_leader_in_the_middle_is_followed(cluster: FakeCluster) -> None:
    fill(cluster, 30)

    def elect() -> None:
        cluster.elect("sea", 0, leader=1)
        fill(cluster, 10)

    asyncio.get_running_loop().call_later(0.5, elect)
    assert await offsets(cluster, range_of(0, 40, epoch=1, end_epoch=2)) == list(range(40))


async def test_offsets_deleted_before_they_are_read_are_reported(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 30)
    cluster.partition("sea").log_start = 10
    with pytest.raises(DataLossError, match="offsets 0 to 9 of sea/0 were deleted before they"):
        await offsets(cluster, range_of(0, 20))
    with caplog.at_level(logging.WARNING):
        assert await offsets(cluster, range_of(0, 20), fail_on_data_loss=False) == list(
            range(10, 20)
        )
    assert "offsets 0 to 9 of sea/0" in caplog.text


async def test_an_entirely_deleted_range_is_reported(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.partition("sea").log_start = 25
    with pytest.raises(DataLossError, match="offsets 0 to 19 of sea/0 were deleted"):
        await offsets(cluster, range_of(0, 20))
    assert await offsets(cluster, range_of(0, 20), fail_on_data_loss=False) == []


async def test_a_log_truncated_below_the_range_is_reported(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.elect_uncleanly("sea", 0, leader=1, end=10)
    fill(cluster, 30)
    with pytest.raises(DataLossError, match="truncated below offset 20 by an unclean election"):
        await offsets(cluster, range_of(20, 30, epoch=1, end_epoch=1))
    assert await offsets(
        cluster, range_of(20, 30, epoch=1, end_epoch=1), fail_on_data_loss=False
    ) == list(range(20, 30))


async def test_a_log_truncated_within_the_range_is_reported(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.elect_uncleanly("sea", 0, leader=1, end=10)
    fill(cluster, 30)
    with pytest.raises(
        DataLossError, match="record there was of leader epoch 1, and is of epoch 2"
    ):
        await offsets(cluster, range_of(5, 30, epoch=1, end_epoch=1))


async def test_a_log_that_ends_before_the_range_is_reported(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.elect_uncleanly("sea", 0, leader=1, end=10)
    with pytest.raises(
        DataLossError, match="offsets 20 to 29 of sea/0 are gone: its log ends at 10"
    ):
        await offsets(cluster, range_of(20, 30))
    assert await offsets(cluster, range_of(20, 30), fail_on_data_loss=False) == []


async def test_offsets_wrongly_denied_by_a_leader_are_read_all_the_same(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "NO_PROGRESS_MS", 10_000)
    fill(cluster, 30)
    refusals = [TidelogError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")] * 2
    cluster.brokers[0].script["fetch"].extend(refusals)
    assert await offsets(cluster, range_of(5, 30)) == list(range(5, 30))
    assert not cluster.brokers[0].script["fetch"]


async def test_another_topic_of_the_same_name_is_not_read(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.create("sea", [0, 1])
    fill(cluster, 30)
    with pytest.raises(
        DataLossError, match=r"deleted and created again.*offsets 5 to 9 were still"
    ):
        await offsets(cluster, range_of(5, 10))
    assert await offsets(cluster, range_of(5, 10), fail_on_data_loss=False) == []


async def test_a_task_without_records_times_out(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough to read all existing records first, on a busy machine too.
    monkeypatch.setattr(range_reader, "NO_PROGRESS_MS", 3_000)
    monkeypatch.setattr(range_reader, "POLL_MS", 20)
    fill(cluster, 10)
    with pytest.raises(TidelogError, match="returned a record from offset 10 on for 3000 ms"):
        await offsets(cluster, range_of(0, 20))


@pytest.mark.rule("stream-offsets-detect-losses")
async def test_a_topic_deleted_before_its_task_begins_is_reported(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.topics.clear()
    with pytest.raises(
        DataLossError, match=r"sea/0 was deleted, .* \(offsets 5 to 9 were still to be read\)"
    ):
        await offsets(cluster, range_of(5, 10))
    assert await offsets(cluster, range_of(5, 10), fail_on_data_loss=False) == []


async def test_a_topic_deleted_while_it_is_read_is_reported(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_state, "UNKNOWN_TOPIC_TIMEOUT_MS", 300)
    fill(cluster, 30)
    deleting = asyncio.create_task(act_once_requested(cluster, 30, cluster.topics.clear))
    with pytest.raises(DataLossError, match=r"sea/0 was deleted, .* \(offsets 30 to 39 were"):
        await offsets(cluster, range_of(0, 40))
    await deleting


async def act_once_requested(cluster: FakeCluster, offset: int, act: Callable[[], object]) -> None:
    """Act after a fetch from this offset: all records before it have been read."""

    def is_requested() -> bool:
        requests = (request for one in cluster.brokers.values() for request in one.seen["fetch"])
        return any(
            each.fetch_offset == offset
            for request in requests
            if isinstance(request, broker_pb2.FetchRequest)
            for each in request.partitions
        )

    while not is_requested():  # noqa: ASYNC110 - a broker reports no metadata updates
        await asyncio.sleep(0.01)
    act()


async def test_a_broker_that_does_not_know_a_partition_yet_is_no_loss(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_lookups, "GONE_AFTER_MS", LONG_MS)
    fill(cluster, 30)
    kept = cluster.topics.pop("sea")
    asyncio.get_running_loop().call_later(0.1, cluster.topics.update, {"sea": kept})
    assert await offsets(cluster, range_of(5, 10)) == list(range(5, 10))


async def test_a_broker_with_metadata_of_the_previous_topic_is_queried_again_with_pauses(
    cluster: FakeCluster,
) -> None:
    cluster.create("sea", [0, 1])
    fill(cluster, 10)
    new = cluster.topics["sea"]
    metadata = broker_pb2.MetadataResponse()
    metadata.CopyFrom(cluster.brokers[0].metadata(broker_pb2.MetadataRequest(topics=["sea"])))
    metadata.topics[0].topic_id, metadata.topics[0].create_revision = "id-of-sea", 1
    for broker in cluster.brokers.values():
        broker.metadata_of = lambda: metadata

    def catch_up() -> None:
        for broker in cluster.brokers.values():
            broker.metadata_of = None

    asyncio.get_running_loop().call_later(0.5, catch_up)
    expected = range_of(0, 10)._replace(topic_id=new.topic_id, create_revision=new.create_revision)
    assert await offsets(cluster, expected) == list(range(10))
    requested = sum(len(broker.seen["metadata"]) for broker in cluster.brokers.values())
    assert requested < 60


@pytest.mark.parametrize(
    ("damaged", "requested", "left"),
    [
        ([(10, 15)], (0, 30), [*range(10), *range(15, 30)]),
        ([(0, 5), (25, 30)], (0, 30), [*range(5, 25)]),
        ([(10, 15), (15, 20)], (12, 30), [*range(20, 30)]),
        ([(10, 15)], (0, 12), [*range(10)]),
        ([(0, 30)], (5, 25), []),
    ],
)
async def test_damaged_records_end_a_task_or_are_skipped(
    cluster: FakeCluster,
    caplog: pytest.LogCaptureFixture,
    damaged: list[tuple[int, int]],
    requested: tuple[int, int],
    left: list[int],
) -> None:
    fill(cluster, 30)
    cluster.partition("sea").damaged = damaged
    with pytest.raises(RecordsDamagedError, match="set the option onDamage to skip") as found:
        await offsets(cluster, range_of(*requested), fail_on_data_loss=False)
    assert (found.value.first_offset, found.value.next_offset) == damaged[0]
    with caplog.at_level(logging.WARNING):
        assert (
            await offsets(cluster, range_of(*requested, epoch=1, end_epoch=1), skip_damaged=True)
            == left
        )
    assert all(f"offsets {first} to {end - 1}" in caplog.text for first, end in damaged)
