"""The positions of archived rows in the logs, read from the archive's files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog_pipeline.archive.core.commits import ArchiveState
from tidelog_pipeline.archive.core.missing_records import MissingRows, given_up_rows, missing_rows
from tidelog_pipeline.archive.core.spans import LogId, Span
from tidelog_pipeline.archive.span_join import rows_within_logs
from tidelog_pipeline.session import to_read

LOG_COLUMNS = ("topic", "topic_id", "partition")
_SCHEMA = StructType(
    [
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        StructField("leader_epoch", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        # The directory of the file.
        StructField("topic", StringType()),
    ]
)

# The types of the columns in the files.
ARROW_TYPES = {
    field.name: field.type
    for field in to_arrow_schema(_SCHEMA, timezone="UTC")
    if field.name != "topic"
}


def topic_of(path: str) -> str:
    """Returns the topic of a file of the table."""
    return path.partition("/")[0].removeprefix("topic=")


def read_locations(
    spark: SparkSession, root: Path, paths: Iterable[str], schema: StructType = _SCHEMA
) -> DataFrame:
    """Returns the rows of these files, which must be readable."""
    files = [to_read(root / path) for path in paths]
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", str(root)).parquet(*files)


def find_missing_rows(
    spark: SparkSession,
    root: Path,
    state: ArchiveState,
    damaged: Collection[str],
    topics: Collection[str],
) -> list[MissingRows]:
    """Returns the rows of these topics that only `damaged` files have; these are not read."""
    logs = [log for log in state.covered if log.topic in topics]
    rows = _sound_rows(spark, root, state, damaged, topics)
    counted = rows.groupBy(*LOG_COLUMNS).agg(sf.count_distinct("leader_epoch", "offset"))
    there = {LogId(*row[:3]): row[3] for row in counted.collect()}
    lacking = {log: state.rows.get(log, 0) - there.get(log, 0) for log in logs}
    lacking = {log: rows for log, rows in lacking.items() if rows > 0}
    present = present_offsets(rows, lacking)
    return [missing_rows(state, log, n, present.get(log, {})) for log, n in lacking.items()]


def find_given_up_rows(
    spark: SparkSession, root: Path, state: ArchiveState, damaged: Collection[str]
) -> list[MissingRows]:
    """Returns the rows that an earlier repair has recorded as lost."""
    if not state.lost:
        return []
    rows = _sound_rows(spark, root, state, damaged, {log.topic for log in state.lost})
    present = present_offsets(rows, state.lost)
    return [given_up_rows(state, log, present.get(log, {})) for log in sorted(state.lost)]


def _sound_rows(
    spark: SparkSession,
    root: Path,
    state: ArchiveState,
    damaged: Collection[str],
    topics: Collection[str],
) -> DataFrame:
    sound = [p for p in state.paths if topic_of(p) in topics and p not in damaged]
    return read_locations(spark, root, sound)


def present_offsets(
    rows: DataFrame, logs: Collection[LogId]
) -> Mapping[LogId, Mapping[int, list[Span]]]:
    """Returns `runs_of_offsets` of these logs."""
    if not logs:
        return {}
    everywhere = Span(0, 2**63 - 1)
    return runs_of_offsets(rows_within_logs(rows, {log: [everywhere] for log in logs}))


def runs_of_offsets(rows: DataFrame) -> dict[LogId, dict[int, list[Span]]]:
    """Returns the contiguous ranges of offsets, by leader epoch."""
    record = (*LOG_COLUMNS, "leader_epoch")
    distinct = rows.select(*record, "offset").distinct()
    in_order = Window.partitionBy(*record).orderBy("offset")
    numbered = distinct.withColumn("run", sf.col("offset") - sf.row_number().over(in_order))
    runs = numbered.groupBy(*record, "run").agg(sf.min("offset"), sf.max("offset"))
    found: dict[LogId, dict[int, list[Span]]] = {}
    for topic, topic_id, partition, epoch, _, first, last in runs.collect():
        of_log = found.setdefault(LogId(topic, topic_id, partition), {})
        of_log.setdefault(epoch, []).append(Span(first, last + 1))
    return found
