"""What each micro-batch reads, over a fake cluster that is queried like a real one."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH
from tidelog.spark import cluster_lookups
from tidelog.spark.data_loss import DataLossError
from tidelog.spark.option_values import OptionError
from tidelog.spark.stream_offsets import ReadTo
from tidelog.v1 import broker_pb2
from unit.client.fake_broker import FakeCluster, FakePartition
from unit.spark.lookups import fill, numbers, planner_of, positions

FROM_START = {"startingOffsets": "earliest"}
LONG_MS = 60_000
SEA_AND_ALL = broker_pb2.MetadataRequest(topics=["sea"])


def grow(cluster: FakeCluster) -> None:
    """Add a partition, as the topic's metadata reports it."""
    topic = cluster.topics["sea"]
    topic.revision += 5
    topic.partitions.append(FakePartition(0, create_revision=topic.revision + 1))


def catch_up(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.metadata_of = None


def requests(cluster: FakeCluster, kind: str) -> int:
    return sum(len(broker.seen[kind]) for broker in cluster.brokers.values())


async def test_a_stream_begins_at_the_configured_position(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with planner_of(cluster) as planner:
        assert positions(await planner.initial()) == [ReadTo(10, 1), ReadTo(0, NO_EPOCH)]
    async with planner_of(cluster, **FROM_START) as planner:
        assert positions(await planner.initial()) == [ReadTo(0), ReadTo(0)]
    async with planner_of(cluster, startingOffsets='{"sea": {"0": 7, "1": -1}}') as planner:
        assert positions(await planner.initial()) == [ReadTo(7, 1), ReadTo(0)]


async def test_an_offset_out_of_range_is_reported_with_the_valid_range(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, startingOffsets='{"sea": {"0": 11, "1": 0}}') as planner:
        with pytest.raises(
            OptionError, match="offset 11 of sea/0 is out of range; it must be 0 to"
        ):
            await planner.initial()


async def test_an_unknown_topic_is_reported(cluster: FakeCluster) -> None:
    async with planner_of(cluster, subscribePattern="s.*", **FROM_START) as planner:
        assert set(await planner.initial()) == {"sea"}
    cluster.topics.clear()
    async with planner_of(cluster) as planner:
        with pytest.raises(TidelogError) as raised:
            await planner.initial()
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_batch_takes_existing_records_and_the_next_new_ones(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        start = await planner.initial()
        end = await planner.next_end(start, None)
        assert positions(end) == [ReadTo(10, 1), ReadTo(0)]
        assert numbers(await planner.ranges(start, end)) == [(0, 0, 10)]
        assert await planner.next_end(end, None) == end
        fill(cluster, 5)
        assert positions(await planner.next_end(end, None))[0] == ReadTo(15, 1)


async def test_a_batch_takes_up_to_its_limit(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    fill(cluster, 10, partition=1)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.initial()
        steps = []
        for _ in range(4):
            at = await planner.next_end(at, 12)
            steps.append([place.offset for place in positions(at)])
        assert [sum(step) for step in steps] == [12, 24, 36, 40]
        assert all(steps[0])


async def test_the_epoch_of_a_record_is_queried_only_after_a_change_of_leader(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
        requested = requests(cluster, "fetch")
        fill(cluster, 10)
        at = await planner.next_end(at, None)
        assert requests(cluster, "fetch") == requested
        cluster.elect("sea", 0, leader=1)
        fill(cluster, 10)
        at = await planner.next_end(at, None)
        assert positions(at)[0] == ReadTo(30, 2)
        assert requests(cluster, "fetch") > requested


async def test_a_quiet_partition_is_compared_with_a_new_leader_once(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
        cluster.elect("sea", 0, leader=1)
        assert await planner.next_end(at, None) == at
        requested = requests(cluster, "fetch")
        assert await planner.next_end(at, None) == at
        assert requests(cluster, "fetch") == requested


async def test_new_partitions_and_topics_are_read_from_their_start(cluster: FakeCluster) -> None:
    async with planner_of(cluster, subscribePattern=".*", startingOffsets="latest") as planner:
        at = await planner.initial()
        cluster.create("land", [0])
        fill(cluster, 5, topic="land")
        grow(cluster)
        fill(cluster, 5, partition=2)
        end = await planner.next_end(at, None)
        found = [(r.partition.topic, *numbers([r])[0]) for r in await planner.ranges(at, end)]
        assert found == [("land", 0, 0, 5), ("sea", 2, 0, 5)]


async def test_with_an_end_later_records_are_not_read(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.initial()
        planner.bound()
        at = await planner.next_end(at, 6)
        fill(cluster, 10)
        at = await planner.next_end(at, 6)
        assert positions(at)[0].offset == 10
        assert await planner.next_end(at, 6) == at


async def test_a_recreated_topic_is_reported(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
    cluster.create("sea", [0, 1])
    fill(cluster, 5)
    async with planner_of(cluster) as planner:
        with pytest.raises(DataLossError, match=r"deleted and created again.*offsets 0: 10, 1: 0"):
            await planner.next_end(at, None)
    async with planner_of(cluster, failOnDataLoss="false") as planner:
        end = await planner.next_end(at, None)
        assert numbers(await planner.ranges(at, end)) == [(0, 0, 5)]


async def test_a_deleted_topic_is_reported_once_all_brokers_have_denied_it(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
        kept = cluster.topics.pop("sea")
        with pytest.raises(
            DataLossError, match=r"'sea' .* was deleted: records from offsets 0: 10"
        ):
            await planner.next_end(at, None)
        cluster.topics["sea"] = kept
        assert await planner.next_end(at, None) == at


@pytest.mark.rule("stream-offsets-detect-losses")
async def test_a_stream_that_may_lose_a_topic_continues_with_the_others(
    cluster: FakeCluster,
) -> None:
    cluster.create("land", [0])
    lossy = {"subscribe": "sea,land", "failOnDataLoss": "false"}
    async with planner_of(cluster, **lossy, **FROM_START) as planner:
        at = await planner.initial()
        del cluster.topics["land"]
        for _ in range(2):
            fill(cluster, 10)
            before, at = at, await planner.next_end(at, None)
            assert set(at) == {"sea"}
    async with planner_of(cluster, **lossy) as planner:
        assert numbers(await planner.ranges(before, at)) == [(0, 10, 20)]
        cluster.create("land", [0])
        fill(cluster, 5, topic="land")
        assert positions(await planner.next_end(at, None), "land") == [ReadTo(5, 1)]


async def test_a_missing_topic_is_reported_to_a_stream_that_may_lose_none(
    cluster: FakeCluster,
) -> None:
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.initial()
    async with planner_of(cluster, subscribe="sea,lnad") as planner:
        with pytest.raises(TidelogError, match="lnad"):
            await planner.next_end(at, None)


async def test_a_missing_topic_is_reported_once_to_a_stream_that_may_lose_one(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("land", [0])
    lossy = {"failOnDataLoss": "false"}
    async with planner_of(cluster, subscribe="sea,land", **lossy, **FROM_START) as planner:
        at = await planner.initial()
    del cluster.topics["land"]
    async with planner_of(cluster, subscribe="sea,land,lnad", **lossy) as planner:
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                at = await planner.next_end(at, None)
    assert caplog.text.count("does not exist") == 1
    assert caplog.text.count("topic 'lnad' does not exist") == 1
    assert caplog.text.count("topic 'land' (id ") == 1


@pytest.mark.rule("stream-offsets-detect-losses")
async def test_a_broker_unaware_of_added_partitions_causes_no_loss(
    cluster: FakeCluster,
) -> None:
    before = [broker.metadata(SEA_AND_ALL) for broker in cluster.brokers.values()]
    grow(cluster)
    fill(cluster, 5, partition=2)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
        for broker, message in zip(cluster.brokers.values(), before, strict=True):
            broker.metadata_of = lambda message=message: message
        asyncio.get_running_loop().call_later(0.3, catch_up, cluster)
        assert await planner.next_end(at, None) == at


async def test_a_topic_deleted_between_two_polls_is_reported(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)

        def metadata_before_deletion() -> broker_pb2.MetadataResponse:
            metadata = cluster.brokers[0].metadata(SEA_AND_ALL)
            cluster.topics.pop("sea", None)
            return metadata

        for broker in cluster.brokers.values():
            broker.metadata_of = metadata_before_deletion
        with pytest.raises(DataLossError, match=r"'sea' .* was deleted: records from offsets 0: 1"):
            await planner.next_end(at, None)


@pytest.mark.rule("stream-offsets-detect-losses")
async def test_a_recreated_partition_is_reported(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
    partitions, topic = cluster.topics["sea"].partitions, cluster.topics["sea"]
    topic.revision = 9
    partitions[0] = FakePartition(0, leader_epoch=7, create_revision=10)
    fill(cluster, 20)
    async with planner_of(cluster) as planner:
        with pytest.raises(DataLossError, match="sea/0 was removed and added again"):
            await planner.next_end(at, None)
    async with planner_of(cluster, failOnDataLoss="false") as planner:
        end = await planner.next_end(at, None)
        assert numbers(await planner.ranges(at, end)) == [(0, 0, 20)]


@pytest.mark.rule("stream-offsets-detect-losses")
async def test_a_removed_assigned_partition_is_reported(cluster: FakeCluster) -> None:
    both = {"assign": '{"sea": [0, 1]}'}
    fill(cluster, 10, partition=1)
    async with planner_of(cluster, **both, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
    cluster.topics["sea"].revision += 5
    cluster.topics["sea"].partitions.pop()
    async with planner_of(cluster, **both) as planner:
        with pytest.raises(DataLossError, match="sea/1 was removed: records from offset 10 on"):
            await planner.next_end(at, None)
    async with planner_of(cluster, **both, failOnDataLoss="false") as planner:
        fill(cluster, 5)
        for _ in range(2):
            at = await planner.next_end(at, None)
            assert positions(at) == [ReadTo(5, 1)]


@pytest.mark.rule("stream-offsets-detect-losses")
async def test_an_assigned_partition_may_be_unknown_to_a_lagging_broker(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [broker.metadata(SEA_AND_ALL) for broker in cluster.brokers.values()]
    grow(cluster)
    async with planner_of(cluster, assign='{"sea": [0, 2]}', **FROM_START) as planner:
        for broker, message in zip(cluster.brokers.values(), before, strict=True):
            broker.metadata_of = lambda message=message: message
        asyncio.get_running_loop().call_later(0.1, catch_up, cluster)
        with monkeypatch.context() as patient:
            patient.setattr(cluster_lookups, "GONE_AFTER_MS", LONG_MS)
            assert set((await planner.initial())["sea"].partitions) == {0, 2}
    async with planner_of(cluster, assign='{"sea": [3]}') as planner:
        with pytest.raises(OptionError, match="partition 3 of topic 'sea', which has 3"):
            await planner.initial()


async def test_an_old_partition_may_be_assigned_later(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    cluster.partition("sea").log_start = 10
    async with planner_of(cluster, assign='{"sea": [1]}', **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
    async with planner_of(cluster, assign='{"sea": [0, 1]}') as planner:
        end = await planner.next_end(at, None)
        assert numbers(await planner.ranges(at, end)) == [(0, 10, 30)]


async def test_records_deleted_by_retention_are_reported(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
        fill(cluster, 20)
        cluster.partition("sea").log_start = 20
        with pytest.raises(DataLossError, match="offsets 10 to 19 of sea/0 were deleted before"):
            await planner.next_end(at, None)
    async with planner_of(cluster, failOnDataLoss="false") as planner:
        with caplog.at_level(logging.WARNING):
            end = await planner.next_end(at, None)
            assert numbers(await planner.ranges(at, end)) == [(0, 20, 30)]
        assert caplog.text.count("offsets 10 to 19 of sea/0") == 1


@pytest.mark.rule("stream-offsets-detect-losses")
@pytest.mark.parametrize("grown", [0, 5, 30])
async def test_a_truncated_log_is_reported_however_far_it_has_grown_since(
    cluster: FakeCluster, grown: int
) -> None:
    fill(cluster, 20)
    async with planner_of(cluster, **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
        cluster.elect_uncleanly("sea", 0, leader=1, end=15)
        fill(cluster, grown)
        with pytest.raises(DataLossError, match="read at offsets 15 to 19"):
            await planner.next_end(at, None)
    async with planner_of(cluster, failOnDataLoss="false") as planner:
        end = await planner.next_end(at, None)
        expected = [(0, 15, 15 + grown)] if grown else []
        assert numbers(await planner.ranges(at, end)) == expected


async def test_a_deselected_partition_is_no_loss(cluster: FakeCluster) -> None:
    cluster.create("land", [0])
    fill(cluster, 5)
    async with planner_of(cluster, subscribePattern=".*", **FROM_START) as planner:
        at = await planner.next_end(await planner.initial(), None)
    async with planner_of(cluster) as planner:
        assert set(await planner.next_end(at, None)) == {"sea"}
    async with planner_of(cluster, assign='{"sea": [1]}') as planner:
        assert set((await planner.next_end(at, None))["sea"].partitions) == {1}


async def test_records_damaged_after_they_were_read_are_no_loss(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 10)
    async with planner_of(cluster, **FROM_START) as planner:
        read = await planner.next_end(await planner.initial(), None)
        cluster.partition("sea").damaged = [(5, 10)]
        cluster.elect("sea", 0, leader=1)
        fill(cluster, 10)
        end = await planner.next_end(read, None)
        assert numbers(await planner.ranges(read, end)) == [(0, 10, 20)]


async def test_a_range_that_ends_with_damaged_records_is_planned(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    cluster.elect("sea", 0, leader=1)
    cluster.partition("sea").damaged = [(5, 10)]
    async with planner_of(cluster, **FROM_START) as planner:
        start = await planner.initial()
        end = await planner.next_end(start, None)
        assert numbers(await planner.ranges(start, end)) == [(0, 0, 10)]
