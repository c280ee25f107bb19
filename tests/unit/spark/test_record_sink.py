"""A writing task and its repetitions, over a fake cluster."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Codec
from tidelog.record_batch import decode
from tidelog.spark.record_sink import RecordSink, WriteCounts
from tidelog.spark.sink_positions import SinkTask
from unit.client.fake_broker import FakeCluster, FakePartition


def rows(values: list[bytes], **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def sink_of(
    cluster: FakeCluster, batch_id: int | None, *, task: int = 0, topic: str | None = "sea"
) -> RecordSink:
    return RecordSink(
        ",".join(cluster.bootstrap()),
        topic=topic,
        codec=Codec.NONE,
        task=None if batch_id is None else SinkTask("query", batch_id, task),
        task_partition=task,
    )


async def written(sink: RecordSink, *batches: pa.RecordBatch) -> WriteCounts:
    try:
        for batch in batches:
            await sink.write(batch)
        return await sink.finish()
    finally:
        await sink.close()


def values(cluster: FakeCluster) -> list[bytes | None]:
    """The values of all partitions, one partition after the other."""
    return [
        value
        for partition in cluster.topics["sea"].partitions
        for batch in partition.batches
        for value in decode(batch).values
    ]


async def test_each_micro_batch_is_written_after_the_one_before(cluster: FakeCluster) -> None:
    assert await written(sink_of(cluster, 0), rows(numbers(10))) == WriteCounts(10, 0)
    assert await written(sink_of(cluster, 1), rows(numbers(10, 10))) == WriteCounts(10, 0)
    assert values(cluster) == numbers(20)


async def test_the_record_size_limit_is_that_of_the_topic(cluster: FakeCluster) -> None:
    cluster.topics["sea"].config["max_batch_bytes"] = str(4 << 20)
    assert await written(sink_of(cluster, 0), rows([bytes(3 << 20)])) == WriteCounts(1, 0)
    assert values(cluster) == [bytes(3 << 20)]


async def test_a_repeated_micro_batch_writes_nothing_twice(cluster: FakeCluster) -> None:
    await written(sink_of(cluster, 0), rows(numbers(10)))
    await written(sink_of(cluster, 1), rows(numbers(10, 10)))
    assert await written(sink_of(cluster, 1), rows(numbers(10, 10))) == WriteCounts(0, 10)
    assert values(cluster) == numbers(20)


@pytest.mark.rule("repeated-micro-batch-written-once")
@pytest.mark.parametrize("arrived", [0, 1, 3, 7])
async def test_a_repeated_micro_batch_writes_the_records_that_are_missing(
    cluster: FakeCluster, arrived: int
) -> None:
    keys = [b"k%d" % n for n in range(20)]
    await written(sink_of(cluster, 0), rows(numbers(20), key=keys))
    first = sink_of(cluster, 1)
    if arrived:
        await first.write(rows(numbers(arrived, 20), key=keys[:arrived]))
        await first.finish()
    await first.close()
    # The split differs, so batches differ from those of the first attempt.
    again = (rows(numbers(4, 20), key=keys[:4]), rows(numbers(16, 24), key=keys[4:]))
    assert await written(sink_of(cluster, 1), *again) == WriteCounts(20 - arrived, arrived)
    assert sorted(map(bytes, filter(None, values(cluster)))) == sorted(numbers(40))


@pytest.mark.rule("repeated-micro-batch-placed-alike")
@pytest.mark.parametrize("keyed", [False, True])
async def test_a_repeated_micro_batch_uses_the_original_partition_count(
    cluster: FakeCluster, keyed: bool
) -> None:
    """The next micro-batch uses the current partition count."""
    content = numbers(6_000)

    def batch(count: int) -> pa.RecordBatch:
        keys: list[bytes | None] = [b"k" + n if keyed else None for n in content[:count]]
        return rows(content[:count], key=pa.array(keys, pa.binary()))

    await written(sink_of(cluster, 0), batch(2_500))
    cluster.topics["sea"].partitions.append(FakePartition(0))
    assert await written(sink_of(cluster, 0), batch(6_000)) == WriteCounts(3_500, 2_500)
    assert sorted(filter(None, values(cluster))) == sorted(content)
    assert not cluster.partition("sea", 2).batches
    await written(sink_of(cluster, 1), batch(6_000))
    assert cluster.partition("sea", 2).batches


@pytest.mark.rule("repeated-micro-batch-placed-alike")
async def test_a_repeated_micro_batch_with_fewer_partitions_writes_nothing(
    cluster: FakeCluster,
) -> None:
    await written(sink_of(cluster, 0), rows(numbers(10)))
    before = values(cluster)
    cluster.topics["sea"].partitions.pop()
    with pytest.raises(
        TidelogError, match="'sea' has 1 partitions, and had 2 at the first attempt"
    ):
        await written(sink_of(cluster, 0), rows(numbers(20)))
    assert values(cluster) == before


async def test_an_abandoned_attempt_writes_no_more(cluster: FakeCluster) -> None:
    late = sink_of(cluster, 0)
    await late.write(rows(numbers(5)))
    await written(sink_of(cluster, 0), rows(numbers(10)))
    await written(sink_of(cluster, 1), rows(numbers(10, 10)))
    with pytest.raises(TidelogError) as raised:
        await written(late, rows(numbers(5, 5)))
    assert raised.value.code is ErrorCode.FENCED_PRODUCER_EPOCH
    assert values(cluster) == numbers(20)


async def test_a_checkpoint_older_than_the_written_records_is_reported(
    cluster: FakeCluster,
) -> None:
    await written(sink_of(cluster, 1), rows(numbers(5)))
    with pytest.raises(TidelogError, match="query query has begun a later batch than 0: its ch"):
        await written(sink_of(cluster, 0), rows(numbers(5)))
    assert values(cluster) == numbers(5)


async def test_a_repeated_micro_batch_with_fewer_records_is_reported(cluster: FakeCluster) -> None:
    keys = [b"k%d" % n for n in range(20)]
    await written(sink_of(cluster, 0), rows(numbers(20), key=keys))
    before = values(cluster)
    with pytest.raises(TidelogError, match=r"missing: \d+ in sea/0, \d+ in sea/1\. Its rows"):
        await written(sink_of(cluster, 0), rows(numbers(2), key=[b"k0", b"k2"]))
    assert values(cluster) == before


async def test_a_rejected_record_loses_no_other_record_of_its_task(cluster: FakeCluster) -> None:
    """A repetition skips as many records as exist, so these must be exactly the first ones."""
    config = cluster.topics["sea"].config
    config["max_batch_bytes"] = "2000"
    content = [*numbers(1), b"x" * 3000, *numbers(5, 2)]
    batches = [rows([value], partition=pa.array([0], pa.int32())) for value in content]
    with pytest.raises(TidelogError, match="bytes are too many"):
        await written(sink_of(cluster, 0), *batches)
    config.clear()
    await written(sink_of(cluster, 0), *batches)
    assert values(cluster) == content


async def test_a_repeated_micro_batch_with_records_for_other_partitions_is_reported(
    cluster: FakeCluster,
) -> None:
    first, again = (rows(numbers(3), partition=pa.array([at] * 3, pa.int32())) for at in (0, 1))
    await written(sink_of(cluster, 0), first)
    with pytest.raises(TidelogError, match=r"missing: 3 in sea/0\. Its rows"):
        await written(sink_of(cluster, 0), again)


@pytest.mark.rule("repeated-micro-batch-written-once")
async def test_a_deposed_leader_does_not_determine_the_resume_position(
    cluster: FakeCluster,
) -> None:
    """It does not know micro-batch 1. If the task believed it, it would take batches of 2 for
    some of 1, and the next ones for the first of 2."""
    cluster.elect("sea", 1, leader=0)
    for batch_id in range(2):
        await written(sink_of(cluster, batch_id), rows(numbers(10, 10 * batch_id)))
    cluster.brokers[0].outdated["sea", 0] = 1
    await written(sink_of(cluster, 2), rows(numbers(10, 20)), rows(numbers(10, 30)))
    assert values(cluster) == numbers(40)


async def test_resume_positions_of_all_partitions_are_queried_once(cluster: FakeCluster) -> None:
    """Before that, the task queries which of the partitions an earlier attempt has written to."""
    cluster.elect("sea", 1, leader=0)
    keys = [b"k%d" % n for n in range(20)]
    await written(sink_of(cluster, 0), rows(numbers(20), key=keys), rows(numbers(20), key=keys))
    assert all(partition.batches for partition in cluster.topics["sea"].partitions)
    assert len(cluster.brokers[0].seen["describe_producers"]) == 2


async def test_tasks_write_concurrently(cluster: FakeCluster) -> None:
    for repeated in range(2):
        for task in range(2):
            counts = await written(sink_of(cluster, 0, task=task), rows(numbers(5, 5 * task)))
            assert counts == (WriteCounts(0, 5) if repeated else WriteCounts(5, 0))
    assert sorted(filter(None, values(cluster))) == numbers(10)


async def test_rows_go_to_their_topic_and_partition(cluster: FakeCluster) -> None:
    cluster.create("land", [0])
    batch = rows(
        numbers(3),
        topic=["land", "sea", "sea"],
        partition=pa.array([None, 1, 0], pa.int32()),
        headers=[[{"key": "a", "value": b"1"}], None, []],
    )
    await written(sink_of(cluster, None, topic=None), batch)
    assert cluster.partition("land").values() == [b"0"]
    assert decode(cluster.partition("land").batches[0]).headers == {0: (("a", b"1"),)}
    assert cluster.partition("sea", 1).values() == [b"1"]
    assert cluster.partition("sea", 0).values() == [b"2"]


async def test_the_topic_option_overrides_the_topic_column(cluster: FakeCluster) -> None:
    """Rows that were read name their source topic, and must not go back there."""
    cluster.create("land", [0])
    await written(sink_of(cluster, None, topic="land"), rows(numbers(2), topic=["sea", None]))
    assert cluster.partition("land").values() == numbers(2)


@pytest.mark.parametrize("headers", [[{"key": None, "value": b"1"}], [None]])
async def test_a_header_without_a_key_is_reported(cluster: FakeCluster, headers: list[Any]) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = rows(numbers(1), headers=pa.array([headers], kind))
    with pytest.raises(TidelogError, match="a header of a row has no key"):
        await written(sink_of(cluster, None), batch)


async def test_a_row_without_a_topic_is_reported(cluster: FakeCluster) -> None:
    with pytest.raises(TidelogError, match="a row has no topic: fill the column, or set"):
        await written(sink_of(cluster, None, topic=None), rows(numbers(2), topic=["sea", None]))


async def test_text_is_written_as_utf8(cluster: FakeCluster) -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["ebb", None]})
    await written(sink_of(cluster, None), batch)
    assert values(cluster) == [b"ebb", None]


async def test_an_unknown_partition_is_reported(cluster: FakeCluster) -> None:
    batch = rows(numbers(1), partition=pa.array([2], pa.int32()))
    with pytest.raises(TidelogError, match=r"partition 2 of topic 'sea', which has 2 \(0 to 1\)"):
        await written(sink_of(cluster, None), batch)
