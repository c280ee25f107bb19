"""Compares each row of an archive with its record in the log, by a hash of its columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from tidelog_pipeline.archive.core.reconciliation import Difference
from tidelog_pipeline.archive.core.spans import LogId, Span, united
from tidelog_pipeline.archive.core.value_format import ValueFormat
from tidelog_pipeline.archive.log_reader import read_ranges_of_logs, without_expired
from tidelog_pipeline.archive.record_locations import read_locations
from tidelog_pipeline.archive.rows import PARTITIONED_BY, archive_rows
from tidelog_pipeline.archive.span_join import rows_within_logs

# Offsets in a bucket share one sum of hashes; rows are joined only in buckets that differ.
_BUCKET = 1_024
# Limits of what is compared by row and reported.
MAX_BUCKETS, MAX_DIFFERENCES = 1_000, 1_000
_LOG = ("topic_id", "partition")
_RECORD = (*_LOG, "leader_epoch", "offset")


Compared = Mapping[LogId, Collection[Span]]


def differences(
    spark: SparkSession,
    root: Path,
    form: ValueFormat,
    bootstrap: str,
    paths: Collection[str],
    compared: Compared,
    expired_before_ms: int,
) -> dict[LogId, list[Difference]]:
    """Returns rows that differ between archive and log.

    Finds the first `MAX_DIFFERENCES`, in the first `MAX_BUCKETS` buckets that differ.

    - `paths`: of readable files.
    - `compared`: offsets that both have.
    """
    logs = {(log.topic_id, log.partition): log for log in compared}
    in_log = _rows_of_log(spark, form, bootstrap, compared)
    if in_log is None:
        return {}
    schema = _as_read(in_log.schema)
    in_files = read_locations(spark, root, paths, schema)
    files, log = (
        rows_within_logs(without_expired(rows, expired_before_ms), compared).select(
            *_RECORD, _hash(schema).alias("hash")
        )
        for rows in (in_files, in_log)
    )
    differing = _differing_buckets(files, log, logs)
    if not differing:
        return {}
    there = rows_within_logs(log, differing).withColumnRenamed("hash", "hash_in_log")
    rows = (
        rows_within_logs(files, differing)
        .join(there, list(_RECORD))
        .where("hash != hash_in_log")
        .orderBy(*_RECORD)
        .limit(MAX_DIFFERENCES)
    )
    found: dict[LogId, list[Difference]] = {}
    for row in rows.collect():
        one = Difference(row.leader_epoch, row.offset)
        found.setdefault(logs[row.topic_id, row.partition], []).append(one)
    return found


def _rows_of_log(
    spark: SparkSession, form: ValueFormat, bootstrap: str, compared: Compared
) -> DataFrame | None:
    """Returns the log's rows as the archive would have them; None: there are none to compare."""
    ends = [(log, united(spans)) for log, spans in compared.items()]
    ranges = {log: Span(spans[0].first, spans[-1].end) for log, spans in ends if spans}
    if not ranges:
        return None
    read = read_ranges_of_logs(
        spark,
        bootstrap,
        ranges,
        includeHeaders="true",
        failOnDataLoss="false",
        onDamage="skip",
    )
    return archive_rows(read, form, {log.topic: log.topic_id for log in ranges})


def _as_read(schema: StructType) -> StructType:
    """Returns the schema for reading files; otherwise Spark infers that topic 007 is a number."""
    fields = [field for field in schema.fields if field.name not in PARTITIONED_BY]
    return StructType([*fields, *(StructField(name, StringType()) for name in PARTITIONED_BY)])


def _differing_buckets(
    in_files: DataFrame, in_log: DataFrame, logs: Mapping[tuple[str, int], LogId]
) -> dict[LogId, list[Span]]:
    files, log = (
        rows.groupBy(
            *_LOG, "leader_epoch", sf.floor(sf.col("offset") / _BUCKET).alias("bucket")
        ).agg(sf.sum(sf.col("hash").cast("decimal(38,0)")).alias(name))
        for rows, name in ((in_files, "files"), (in_log, "log"))
    )
    key = [*_LOG, "leader_epoch", "bucket"]
    rows = files.join(log, key).where("files != log").orderBy(*key).limit(MAX_BUCKETS)
    found: dict[LogId, list[Span]] = {}
    for row in rows.collect():
        span = Span(row.bucket * _BUCKET, (row.bucket + 1) * _BUCKET)
        found.setdefault(logs[row.topic_id, row.partition], []).append(span)
    return found


def _hash(schema: StructType) -> Column:
    """Hashes all columns except those that identify the record. Null differs from empty."""
    parts = []
    for field in schema.fields:
        if field.name not in (*_RECORD, *PARTITIONED_BY):
            column = sf.col(field.name)
            parts += [
                column.isNull(),
                sf.to_json(column) if _has_map(field.dataType) else column,
            ]
    return sf.xxhash64(*parts)


def _has_map(kind: DataType) -> bool:
    """Spark does not hash maps."""
    match kind:
        case MapType():
            return True
        case ArrayType(elementType=element):
            return _has_map(element)
        case StructType(fields=fields):
            return any(_has_map(field.dataType) for field in fields)
    return False
