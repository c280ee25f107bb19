"""Leader epochs at the edges of tasks, and how rarely a broker is queried for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.spark.batch_reader import BatchReader
from tidelog.spark.boundary_epochs import with_boundary_epochs
from tidelog.spark.columns import schema_of
from tidelog.spark.data_loss import DataLossError
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import OffsetRange, split
from tidelog.spark.stream_offsets import ReadTo
from unit.client.fake_broker import FakeCluster
from unit.spark.lookups import fill, planner_of

SEA, LAND = TopicPartition("sea", 0), TopicPartition("land", 0)


class Log:
    """The epoch of each record is its offset divided by 100; `gone`: the log start."""

    def __init__(self, gone: int = 0, error: TidelogError | None = None) -> None:
        self.questions = 0
        self._gone, self._error = gone, error

    async def epochs_before(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        self.questions += 1
        if self._error is not None:
            raise self._error
        return {p: self.epoch(offset) for p, offset in offsets.items()}

    def epoch(self, offset: int) -> int:
        return NO_EPOCH if offset <= self._gone else (offset - 1) // 100


def parts_of(partition: TopicPartition, start: ReadTo, end: ReadTo) -> list[OffsetRange]:
    return split([OffsetRange(partition, "id", 1, start, end)], 20, None)


@pytest.mark.parametrize("gone", [0, 250, 1_000])
async def test_every_edge_has_the_epoch_of_the_record_before_it(gone: int) -> None:
    log = Log(gone)
    first, last = parts_of(SEA, ReadTo(0), ReadTo(1_000)), parts_of(LAND, ReadTo(0), ReadTo(400))
    found = await with_boundary_epochs([*first, *last], log)
    assert [part.end for part in found] == [
        ReadTo(part.end.offset, log.epoch(part.end.offset)) for part in [*first, *last]
    ]
    assert found[0].start == ReadTo(0)
    assert all(one.end == after.start for one, after in pairwise(found[:20]))


async def test_within_one_epoch_no_broker_is_queried() -> None:
    log = Log()
    found = await with_boundary_epochs(parts_of(SEA, ReadTo(301, 3), ReadTo(399, 3)), log)
    assert {part.start.leader_epoch for part in found} == {3}
    assert log.questions == 0


async def test_deleted_offsets_are_left_to_their_task() -> None:
    gone = TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
    parts = parts_of(SEA, ReadTo(0), ReadTo(100))
    assert await with_boundary_epochs(parts, Log(error=gone)) == parts


@pytest.mark.rule("tasks-detect-changed-logs")
async def test_a_truncation_between_two_tasks_of_a_partition_is_reported(
    cluster: FakeCluster,
) -> None:
    """This holds also if the log has grown again."""
    fill(cluster, 40)
    given = {"bootstrap.servers": ",".join(cluster.bootstrap()), "assign": '{"sea": [0]}'}
    options = ReadOptions.of_batch({**given, "minPartitions": "2"})
    reader = BatchReader(options, schema_of(options.columns))
    first, second = await asyncio.to_thread(reader.partitions)
    assert await asyncio.to_thread(lambda: sum(b.num_rows for b in reader.read(first))) == 20
    cluster.elect_uncleanly("sea", 0, leader=1, end=10)
    fill(cluster, 40)
    with pytest.raises(DataLossError, match="truncated"):
        await asyncio.to_thread(lambda: list(reader.read(second)))


@pytest.mark.rule("tasks-detect-changed-logs")
async def test_tasks_of_a_micro_batch_have_epochs_too(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    cluster.elect("sea", 0, leader=1)
    fill(cluster, 20)
    async with planner_of(cluster, startingOffsets="earliest", minPartitions="4") as planner:
        start = await planner.initial()
        parts = await planner.ranges(start, await planner.next_end(start, None))
    newest = cluster.partition("sea").leader_epoch
    ends = [part.end.leader_epoch for part in parts]
    assert ends == [newest - 1, newest - 1, newest, newest]
