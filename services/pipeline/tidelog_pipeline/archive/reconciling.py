"""Counts the records of an archive and of the log, for `reconciliation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidelog.client.sync import SyncConsumer
from tidelog.model import TopicPartition
from tidelog_pipeline.archive.archive_log import FORM, ArchiveLog, Seen
from tidelog_pipeline.archive.cluster import LogsNow, logs_now
from tidelog_pipeline.archive.commits import ArchiveState
from tidelog_pipeline.archive.file_checks import absent_or_cut, damaged
from tidelog_pipeline.archive.places import LOG_COLUMNS, places, topic_of
from tidelog_pipeline.archive.reading import read_ranges_of_logs, without_expired
from tidelog_pipeline.archive.reconciliation import (
    Counted,
    Difference,
    InFiles,
    LogReport,
    compared_offsets,
    holes,
    report,
)
from tidelog_pipeline.archive.span_join import is_within_logs, with_topic_id
from tidelog_pipeline.archive.spans import LogId, Span
from tidelog_pipeline.archive.value_comparison import differences
from tidelog_pipeline.archive.value_form import ValueForm, form_from_json
from tidelog_pipeline.session import QUERY_ERRORS

# Until a leader has told whether there is a record.
_PROBE_MS = 30_000
# Where files or records that were to be counted go away meanwhile.
_ATTEMPTS = 5

_Counts = Mapping[LogId, Mapping[int, Counted]]
_Compared = Mapping[LogId, tuple[Span, ...]]


class Reconciled(NamedTuple):
    """`damaged`: what is wrong with files, by path."""

    damaged: Mapping[str, str]
    logs: list[LogReport]

    @property
    def is_sound(self) -> bool:
        return not self.damaged and not any(one.problems for one in self.logs)


class _Looked(NamedTuple):
    """The archive and the logs at one moment. `wrong`: what is wrong with files that readers
    see."""

    seen: Seen
    now: LogsNow
    wrong: Mapping[str, str]

    @property
    def readable(self) -> list[str]:
        """With files that the archive does not know, as readers find them."""
        topics = {log.topic for log in self.seen.state.covered}
        return [p for p in self.seen.files if topic_of(p) in topics and p not in self.wrong]

    @property
    def damaged(self) -> dict[str, str]:
        missing = sorted(set(self.seen.state.paths) - set(self.seen.files))
        return {**dict.fromkeys(missing, "it is missing"), **self.wrong}


def reconcile(
    spark: SparkSession, archive: ArchiveLog, bootstrap: str, *, deep: bool = False
) -> Reconciled:
    """Of each log of the topics that the archive has read. Reads all that is compared once more
    from its leaders. A run may archive and compact meanwhile. `deep`: reads every byte of the
    files, and compares every row with its record. Raises `TidelogError`."""
    root = archive.directory.root
    unreadable: dict[str, str] = {}
    for number in range(1, _ATTEMPTS + 1):
        seen = archive.seen()
        now = logs_now(bootstrap, {log.topic for log in seen.state.covered}, must_exist=False)
        there = set(seen.files)
        files = [file for file in seen.state.all_files if file.path in there]
        wrong = damaged(spark, root, files) if deep else absent_or_cut(root, files)
        if not wrong.keys() <= set(archive.load().paths) and number < _ATTEMPTS:
            # A compaction has taken them away while they were read.
            continue
        known = {path: why for path, why in unreadable.items() if path in there}
        looked = _Looked(seen, now, {**known, **wrong})
        try:
            return _reconciled(spark, archive, bootstrap, looked, deep=deep)
        except QUERY_ERRORS:
            if number == _ATTEMPTS:
                raise
            if not _is_overtaken(archive, bootstrap, seen, now):
                # Spark reads no more of a file than it needs, and does not say which it was.
                found = damaged(spark, root, files)
                if found.keys() <= looked.wrong.keys():
                    raise
                unreadable |= found
    raise AssertionError("the last attempt returns or raises")


def _is_overtaken(archive: ArchiveLog, bootstrap: str, seen: Seen, now: LogsNow) -> bool:
    """Whether a compaction has taken files away, or retention records, since they were listed."""
    if not set(seen.files) <= set(archive.seen().files):
        return True
    later = logs_now(bootstrap, {log.topic for log in now}, must_exist=False)
    return any(log not in later or later[log].first > span.first for log, span in now.items())


def _reconciled(
    spark: SparkSession, archive: ArchiveLog, bootstrap: str, looked: _Looked, *, deep: bool
) -> Reconciled:
    state, now = looked.seen.state, looked.now
    compared = {log: compared_offsets(state, log, now.get(log)) for log in state.covered}
    # First: retention may delete what is compared.
    in_log = _counted_in_log(spark, bootstrap, compared, state.expired_before_ms)
    rows = places(spark, archive.directory.root, looked.readable)
    in_files = _files(rows)
    in_archive = _counts(without_expired(rows, state.expired_before_ms), compared)
    differing: Mapping[LogId, list[Difference]] = {}
    if deep:
        form = _form(archive)
        root, before_ms = archive.directory.root, state.expired_before_ms
        differing = differences(spark, root, form, bootstrap, looked.readable, compared, before_ms)
    full = _full_holes(bootstrap, state, now)
    reports = [
        report(
            state,
            log,
            now.get(log),
            in_files.get(log, InFiles(0, 0)),
            in_log.get(log, {}),
            in_archive.get(log, {}),
            full.get(log, ()),
            differing.get(log, ()),
        )
        # Partitions that nobody has read yet, too.
        for log in sorted({*state.covered, *now})
    ]
    return Reconciled(looked.damaged, reports)


def _form(archive: ArchiveLog) -> ValueForm:
    kept = archive.own.read(FORM)
    return ValueForm() if kept is None else form_from_json(kept, FORM)


def _files(places: DataFrame) -> dict[LogId, InFiles]:
    groups = places.groupBy(*LOG_COLUMNS).agg(
        sf.count("*"), sf.count_distinct("leader_epoch", "offset")
    )
    return {LogId(*row[:3]): InFiles(*row[3:]) for row in groups.collect()}


def _counts(places: DataFrame, compared: _Compared) -> _Counts:
    found: dict[LogId, dict[int, Counted]] = {}
    groups = (
        places.where(_is_compared(compared))
        .groupBy(*LOG_COLUMNS, "leader_epoch")
        .agg(sf.count("*"), sf.sum("offset"))
    )
    for *log, epoch, rows, offsets in groups.collect():
        found.setdefault(LogId(*log), {})[epoch] = Counted(rows, offsets)
    return found


def _is_compared(compared: _Compared) -> Column:
    return is_within_logs(SparkSession.active(), compared)


def _counted_in_log(
    spark: SparkSession, bootstrap: str, compared: _Compared, expired_before_ms: int
) -> _Counts:
    ranges = {log: Span(s[0].first, s[-1].end) for log, s in compared.items() if s}
    if not ranges:
        return {}
    columns = "topic,partition,leader_epoch,offset,timestamp"
    read = read_ranges_of_logs(spark, bootstrap, ranges, columns=columns)
    left = without_expired(read, expired_before_ms)
    return _counts(with_topic_id(left, {log.topic: log.topic_id for log in ranges}), compared)


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
