"""Counts the records of an archive and of the log, for `reconciliation`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tidelog.client.sync import SyncConsumer
from tidelog.model import TopicPartition
from tidelog_pipeline.archive.archive_log import ArchiveLog, Seen
from tidelog_pipeline.archive.cluster import LogsNow, logs_now
from tidelog_pipeline.archive.commits import ArchiveState
from tidelog_pipeline.archive.offsets_text import assigned, by_partition
from tidelog_pipeline.archive.reconciliation import (
    Counted,
    InFiles,
    LogReport,
    compared_offsets,
    holes,
    report,
)
from tidelog_pipeline.archive.span_join import with_topic_id, within_logs
from tidelog_pipeline.archive.spans import LogId, Span

# Until a leader has told whether there is a record.
_PROBE_MS = 30_000
# Where files or records that were to be counted go away meanwhile.
_ATTEMPTS = 5
_PLACES = StructType(
    [
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        StructField("leader_epoch", IntegerType()),
        StructField("offset", LongType()),
        # The directory that it lies in.
        StructField("topic", StringType()),
    ]
)
_LOG = ("topic", "topic_id", "partition")

_Counts = Mapping[LogId, Mapping[int, Counted]]
_Compared = Mapping[LogId, tuple[Span, ...]]


def reconcile(spark: SparkSession, archive: ArchiveLog, bootstrap: str) -> list[LogReport]:
    """Of each log of the topics that the archive has read. Reads all that is compared once more
    from its leaders. A run may archive and compact meanwhile. Raises `TidelogError`."""
    for attempt in range(1, _ATTEMPTS + 1):
        seen = archive.seen()
        now = logs_now(bootstrap, {log.topic for log in seen.state.covered}, must_exist=False)
        try:
            return _reconciled(spark, archive, bootstrap, seen, now)
        except PySparkException:
            if attempt == _ATTEMPTS or not _is_overtaken(archive, bootstrap, seen, now):
                raise
    raise AssertionError("the last attempt returns or raises")


def _is_overtaken(archive: ArchiveLog, bootstrap: str, seen: Seen, now: LogsNow) -> bool:
    """Whether a compaction has taken files away, or retention records, since they were listed."""
    if not set(seen.files) <= set(archive.seen().files):
        return True
    later = logs_now(bootstrap, {log.topic for log in now}, must_exist=False)
    return any(log not in later or later[log].first > span.first for log, span in now.items())


def _reconciled(
    spark: SparkSession, archive: ArchiveLog, bootstrap: str, seen: Seen, now: LogsNow
) -> list[LogReport]:
    state = seen.state
    compared = {log: compared_offsets(state, log, now.get(log)) for log in state.covered}
    # First: retention may delete what is compared.
    in_log = _counted_in_log(spark, bootstrap, compared)
    places = _places(spark, archive, seen)
    in_files, in_archive = _files(places), _counts(places, compared)
    full = _full_holes(bootstrap, state, now)
    return [
        report(
            state,
            log,
            now.get(log),
            in_files.get(log, InFiles(0, 0)),
            in_log.get(log, {}),
            in_archive.get(log, {}),
            full.get(log, ()),
        )
        # Partitions that nobody has read yet, too.
        for log in sorted({*state.covered, *now})
    ]


def _places(spark: SparkSession, archive: ArchiveLog, seen: Seen) -> DataFrame:
    """As readers find them, with files that the archive does not know, and without those that have
    come since."""
    root = archive.directory.root
    folders = tuple(f"topic={topic}/" for topic in {log.topic for log in seen.state.covered})
    files = [str(root / path) for path in seen.files if path.startswith(folders)]
    if not files:
        return spark.createDataFrame([], _PLACES)
    return spark.read.schema(_PLACES).option("basePath", str(root)).parquet(*files)


def _files(places: DataFrame) -> dict[LogId, InFiles]:
    groups = places.groupBy(*_LOG).agg(sf.count("*"), sf.count_distinct("leader_epoch", "offset"))
    return {LogId(*row[:3]): InFiles(*row[3:]) for row in groups.collect()}


def _counts(places: DataFrame, compared: _Compared) -> _Counts:
    found: dict[LogId, dict[int, Counted]] = {}
    groups = (
        within_logs(places, compared)
        .groupBy(*_LOG, "leader_epoch")
        .agg(sf.count("*"), sf.sum("offset"))
    )
    for *log, epoch, rows, offsets in groups.collect():
        found.setdefault(LogId(*log), {})[epoch] = Counted(rows, offsets)
    return found


def _counted_in_log(spark: SparkSession, bootstrap: str, compared: _Compared) -> _Counts:
    wanted = {log: spans for log, spans in compared.items() if spans}
    if not wanted:
        return {}
    read = (
        spark.read.format("tidelog")
        .options(
            **{
                "bootstrap.servers": bootstrap,
                "assign": assigned(wanted),
                "startingOffsets": by_partition({log: s[0].first for log, s in wanted.items()}),
                "endingOffsets": by_partition({log: s[-1].end for log, s in wanted.items()}),
                "columns": "topic,partition,leader_epoch,offset",
            }
        )
        .load()
    )
    ids = {log.topic: log.topic_id for log in wanted}
    return _counts(with_topic_id(read, ids), wanted)


def _full_holes(bootstrap: str, state: ArchiveState, now: LogsNow) -> dict[LogId, tuple[Span, ...]]:
    found: dict[LogId, tuple[Span, ...]] = {}
    with SyncConsumer(bootstrap) as consumer:
        for log in state.covered:
            full = [h for h in holes(state, log, now.get(log)) if _has_record(consumer, log, h)]
            if full:
                found[log] = tuple(full)
    return found


def _has_record(consumer: SyncConsumer, log: LogId, hole: Span) -> bool:
    """Offsets may be without one: those of a fence, and what an aborted attempt left out."""
    partition = TopicPartition(log.topic, log.partition)
    consumer.assign([partition])
    consumer.seek(partition, hole.first)
    for _ in range(_PROBE_MS // 200):
        records = consumer.poll(200, 1)
        if records:
            return records[0].offset < hole.end
        if (consumer.position(partition) or 0) >= hole.end:
            return False
    return True
