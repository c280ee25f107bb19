"""A fake cluster as drivers query it, with numbers as records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelog.batch import stamp
from tidelog.record_batch import encode
from tidelog.spark.cluster_lookups import ClusterLookups
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import OffsetRange
from tidelog.spark.stream_offsets import ReadTo, StreamOffsets
from tidelog.spark.stream_planner import StreamPlanner
from unit.client.fake_broker import FakeCluster


def fill(cluster: FakeCluster, count: int, *, topic: str = "sea", partition: int = 0) -> None:
    """Append batches of five records; the timestamp of each equals its offset."""
    log = cluster.partition(topic, partition)
    for first in range(log.end, log.end + count, 5):
        batch = encode([b"%d" % n for n in range(5)], timestamps_ms=list(range(first, first + 5)))
        log.batches.append(
            stamp(batch, base_offset=first, leader_epoch=log.leader_epoch, append_time_ms=1)
        )


def positions(offsets: StreamOffsets, topic: str = "sea") -> list[ReadTo]:
    return [at for _, at in sorted(offsets[topic].partitions.items())]


def numbers(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(r.partition.partition, r.start.offset, r.end.offset) for r in ranges]


@asynccontextmanager
async def planner_of(cluster: FakeCluster, **given: str) -> AsyncIterator[StreamPlanner]:
    bootstrap = ",".join(cluster.bootstrap())
    topics = {} if {"assign", "subscribePattern"} & set(given) else {"subscribe": "sea"}
    options = ReadOptions.of_stream({"bootstrap.servers": bootstrap, **topics, **given})
    planner = StreamPlanner(options, ClusterLookups(bootstrap))
    try:
        yield planner
    finally:
        await planner.close()
