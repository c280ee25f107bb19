"""What a repeated micro-batch reads, over a fake cluster."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidelog.spark import cluster_lookups
from tidelog.spark.columns import schema_of
from tidelog.spark.data_loss import DataLossError
from tidelog.spark.options import ReadOptions
from tidelog.spark.stream_offsets import ReadTo, StreamOffsets
from tidelog.spark.stream_reader import StreamReader
from unit.client.fake_broker import FakeCluster
from unit.spark.lookups import fill, numbers, planner_of, positions

FROM_START = {"startingOffsets": "earliest"}
LONG_MS = 60_000


async def test_a_repeated_batch_is_planned_identically(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    async with planner_of(cluster, minPartitions="3", **FROM_START) as planner:
        start = await planner.initial()
        end = await planner.next_end(start, None)
        first = await planner.ranges(start, end)
    fill(cluster, 20)
    cluster.elect("sea", 0, leader=1)
    async with planner_of(cluster, minPartitions="3") as planner:
        assert await planner.ranges(start, end) == first
    assert len(first) == 3


async def grown(cluster: FakeCluster) -> tuple[StreamOffsets, StreamOffsets]:
    """A micro-batch with a topic and a partition added after the previous one."""
    async with planner_of(cluster, subscribePattern=".*") as planner:
        start = await planner.initial()
        cluster.create("land", [0])
        sea = cluster.topics["sea"].partitions
        sea.append(type(sea[0])(0))
        fill(cluster, 10, topic="land")
        fill(cluster, 10, partition=2)
        end = await planner.next_end(start, None)
        assert positions(end)[2] == positions(end, "land")[0] == ReadTo(10, 1)
    return start, end


@pytest.mark.rule("repeated-micro-batch-written-once")
async def test_a_repeated_batch_has_the_partitions_that_were_new_in_it(
    cluster: FakeCluster,
) -> None:
    """It begins there where it first began, although the log now begins elsewhere."""
    start, end = await grown(cluster)
    fill(cluster, 10, topic="land")
    cluster.topics["sea"].partitions.append(type(cluster.partition("sea"))(0))
    async with planner_of(cluster, subscribePattern=".*") as planner:
        again = await planner.ranges(start, end)
        assert [(r.partition.topic, *numbers([r])[0]) for r in again] == [
            ("land", 0, 0, 10),
            ("sea", 2, 0, 10),
        ]


async def test_a_repeated_batch_waits_for_a_lagging_broker(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_lookups, "GONE_AFTER_MS", LONG_MS)
    start, end = await grown(cluster)
    land = cluster.topics.pop("land")
    loop = asyncio.get_running_loop()
    loop.call_later(0.1, cluster.topics.__setitem__, "land", land)
    async with planner_of(cluster, subscribePattern=".*") as planner:
        again = await planner.ranges(start, end)
        assert [r.partition.topic for r in again] == ["land", "sea"]


@pytest.mark.parametrize("topic", ["land", "sea"])
async def test_a_repeated_batch_reports_missing_records(cluster: FakeCluster, topic: str) -> None:
    start, end = await grown(cluster)
    cluster.topics[topic].partitions[-1].log_start = 5
    async with planner_of(cluster, subscribePattern=".*") as planner:
        with pytest.raises(DataLossError, match=f"offsets 0 to 4 of {topic}/[02] were deleted"):
            await planner.ranges(start, end)
    if topic == "land":
        del cluster.topics["land"]
        async with planner_of(cluster, subscribePattern=".*") as planner:
            with pytest.raises(DataLossError, match=r"'land' .* was deleted: records from"):
                await planner.ranges(start, end)


async def test_a_batch_that_continued_after_a_loss_is_repeated_identically(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 20)
    async with planner_of(cluster, **FROM_START) as planner:
        start = await planner.next_end(await planner.initial(), None)
    fill(cluster, 20)
    cluster.partition("sea").log_start = 30
    async with planner_of(cluster, failOnDataLoss="false") as planner:
        end = await planner.next_end(start, None)
        first = await planner.ranges(start, end)
    async with planner_of(cluster) as planner:
        assert await planner.ranges(start, end) == first
    assert numbers(first) == [(0, 30, 40)]


@pytest.mark.rule("repeated-micro-batch-written-once")
async def test_a_repeated_batch_keeps_its_split(cluster: FakeCluster) -> None:
    """This holds also with changed options, which apply to the next batch."""
    fill(cluster, 20)

    def reader_of(**given: str) -> StreamReader:
        bootstrap = ",".join(cluster.bootstrap())
        options = {"bootstrap.servers": bootstrap, "subscribe": "sea", **FROM_START, **given}
        read = ReadOptions.of_stream(options)
        return StreamReader(read, schema_of(read.columns))

    def planned() -> tuple[list[int], Any]:
        """Plan in a separate thread, as Spark does."""
        first, again = reader_of(minPartitions="3"), reader_of(maxRecordsPerPartition="5")
        start = first.initialOffset()
        end = json.loads(json.dumps(first.latestOffset(start, ReadAllAvailable())))
        counts = [len(reader.partitions(start, end)) for reader in (first, again)]
        assert again.latestOffset(end, ReadAllAvailable()) == end
        fill(cluster, 20)
        later = again.latestOffset(end, ReadAllAvailable())
        counts.append(len(again.partitions(end, later)))
        first.stop()
        again.stop()
        return counts, later["split"]

    assert await asyncio.to_thread(planned) == ([3, 3, 4], {"min": None, "max": 5})
