"""Filters rows by spans of offsets, for any number of partitions and leader epochs.

The spans are a table that Spark joins. A condition with a term for each span would overflow the
stack of Spark's optimizer at a few hundred terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidelog_pipeline.archive.core.commits import Archived
from tidelog_pipeline.archive.core.spans import LogId, Span

_FIRST, _END = "__span_first", "__span_end"
_TOPIC, _ID = "__topic", "topic_id"
_TYPES = {
    "topic": pa.string(),
    "topic_id": pa.string(),
    "partition": pa.int32(),
    "leader_epoch": pa.int32(),
}
# The keys of a record: in files, and in the log, where a name has one topic at a time.
_IN_FILES = ("topic_id", "partition", "leader_epoch")
_IN_LOG = ("topic", "partition", "leader_epoch")

_SpanRow = tuple[str, int, int, int] | tuple[str, int, int, int, int]


def is_within_logs(spark: SparkSession, spans: Mapping[LogId, Iterable[Span]]) -> Column:
    """Returns whether the offset of a row is in a span of its log (`topic_id`, `partition`)."""
    rows = [(log.topic_id, log.partition, *s) for log, of_log in spans.items() for s in of_log]
    return _is_in_span(spark, _IN_FILES[:2], rows)


def rows_within_logs(frame: DataFrame, spans: Mapping[LogId, Iterable[Span]]) -> DataFrame:
    return frame.where(is_within_logs(frame.sparkSession, spans))


def keep_archived(frame: DataFrame, archived: Iterable[Archived]) -> DataFrame:
    """Returns the rows that are among these records.

    - `frame`: of files, or of the data source. In the latter case its topics have to be those
      of the records.
    """
    by_id = "topic_id" in frame.columns
    key = _IN_FILES if by_id else _IN_LOG
    return frame.where(_is_in_span(frame.sparkSession, key, _records(archived, by_id=by_id)))


def drop_archived(frame: DataFrame, archived: Iterable[Archived]) -> DataFrame:
    """Returns the rows that are not among these records; `frame` as in `keep_archived`."""
    by_id = "topic_id" in frame.columns
    key = _IN_FILES if by_id else _IN_LOG
    rows = _records(archived, by_id=by_id)
    return frame.where(~_is_in_span(frame.sparkSession, key, rows)) if rows else frame


def with_topic_id(frame: DataFrame, topic_ids: Mapping[str, str]) -> DataFrame:
    """Adds the topic's id to rows of the data source; null for a topic without one."""
    table = pa.table(
        {_TOPIC: pa.array(list(topic_ids)), _ID: pa.array(list(topic_ids.values()))},
        schema=pa.schema([(_TOPIC, pa.string()), (_ID, pa.string())]),
    )
    ids = frame.sparkSession.createDataFrame(table)
    return frame.join(sf.broadcast(ids), frame["topic"] == ids[_TOPIC], "left").drop(_TOPIC)


def _records(archived: Iterable[Archived], *, by_id: bool) -> list[_SpanRow]:
    return [
        (r.log.topic_id if by_id else r.log.topic, r.log.partition, r.leader_epoch, *r.offsets)
        for r in archived
    ]


def _is_in_span(spark: SparkSession, key: tuple[str, ...], rows: Sequence[_SpanRow]) -> Column:
    """Returns a subquery, which Spark plans as a join with a broadcast table."""
    types = {**{f"__{name}": _TYPES[name] for name in key}, _FIRST: pa.int64(), _END: pa.int64()}
    columns = zip(*rows, strict=True) if rows else ((),) * len(types)
    arrays = [pa.array(c, kind) for c, kind in zip(columns, types.values(), strict=True)]
    spans = spark.createDataFrame(pa.table(arrays, names=list(types)))
    offset = sf.col("offset").outer()
    is_same = (offset >= sf.col(_FIRST)) & (offset < sf.col(_END))
    for name in key:
        is_same &= sf.col(name).outer() == sf.col(f"__{name}")
    return sf.broadcast(spans).where(is_same).exists()
