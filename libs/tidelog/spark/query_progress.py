"""The progress of a query, from what Spark reports, and the metrics for Prometheus. Pure
functions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.spark.stream_offsets import StreamOffsets, from_value


class MetricSpec(NamedTuple):
    """A metric for Prometheus. `name`: the exporter appends _total to a counter's name."""

    name: str
    help: str
    labels: tuple[str, ...]


# `query`: the name of a query, or its id if it has none.
_OF_QUERY = ("query", "query_id")
_OF_PARTITION = (*_OF_QUERY, "topic", "partition")

LAG_RECORDS = MetricSpec(
    "tidelog_spark_lag_records",
    "Records between where a query will read next and the end of the log, as of its last "
    "query. If it only grows, check whether rows per second can be raised: more cores, or a higher "
    "maxOffsetsPerTrigger.",
    _OF_PARTITION,
)
NEXT_OFFSET = MetricSpec(
    "tidelog_spark_next_offset", "Offset of the record that a query will read next.", _OF_PARTITION
)
BATCH_ID = MetricSpec("tidelog_spark_batch_id", "The last micro-batch that has ended.", _OF_QUERY)
PROGRESS_AGE_SECONDS = MetricSpec(
    "tidelog_spark_progress_age_seconds",
    "Seconds since a query last ended a micro-batch, or found nothing new. If it only grows, "
    "the query hangs and its lag is unknown: check its jobs in Spark's web UI.",
    _OF_QUERY,
)
ROWS = MetricSpec("tidelog_spark_rows", "Rows that a query has read.", _OF_QUERY)
FAILURES = MetricSpec(
    "tidelog_spark_failures",
    "How often a query has ended with an error. Check the driver's log.",
    _OF_QUERY,
)
GAUGES = (LAG_RECORDS, NEXT_OFFSET, BATCH_ID, PROGRESS_AGE_SECONDS)
COUNTERS = (ROWS, FAILURES)


class SourceProgress(Protocol):
    """A source's progress as `pyspark.sql.streaming` reports it. Offsets are JSON, or None."""

    @property
    def endOffset(self) -> str: ...  # noqa: N802
    @property
    def latestOffset(self) -> str: ...  # noqa: N802


class PartitionProgress(NamedTuple):
    """The progress in one partition.

    - `next_offset`: offset of the next record that the query reads.
    - `end_offset`: the end of the log when the query last requested it.
    """

    next_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        return max(self.end_offset - self.next_offset, 0)


def progress_by_partition(
    sources: Iterable[SourceProgress],
) -> dict[TopicPartition, PartitionProgress]:
    """Returns the progress of tidelog's sources. If two read a partition, it is that of the one
    further behind."""
    found: dict[TopicPartition, PartitionProgress] = {}
    for source in sources:
        read, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for topic, of_topic in read.items():
            for partition, at in of_topic.partitions.items():
                last = latest[topic].partitions.get(partition, at) if topic in latest else at
                progress = PartitionProgress(at.offset, last.offset)
                name = TopicPartition(topic, partition)
                if name not in found or progress.lag > found[name].lag:
                    found[name] = progress
    return found


def _offsets(text: str | None) -> StreamOffsets:
    """Returns nothing for offsets of other sources."""
    try:
        return from_value(json.loads(text or ""))
    except (ValueError, TidelogError):
        return {}
