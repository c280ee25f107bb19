"""Counts the records of an archive and of the log, for `reconciliation`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidelog.errors import ErrorCode, RecordsDamagedError
from tidelog_pipeline.archive.archive_log import ArchiveLog, ArchiveSnapshot, unnamed
from tidelog_pipeline.archive.cluster_logs import LogsNow, logs_now
from tidelog_pipeline.archive.core.commits import ArchiveState
from tidelog_pipeline.archive.core.reconciliation import (
    NO_DAMAGE,
    Counted,
    Difference,
    FileCounts,
    LogDamage,
    LogReport,
    compared_offsets,
    holes,
    report,
    spans_text,
)
from tidelog_pipeline.archive.core.spans import LogId, Span, remaining, united
from tidelog_pipeline.archive.core.value_format import ValueFormat
from tidelog_pipeline.archive.damaged_records import Prober, left_out, new_prober
from tidelog_pipeline.archive.file_checks import absent_or_cut, as_found, find_damaged, find_foreign
from tidelog_pipeline.archive.format_files import stored_format
from tidelog_pipeline.archive.log_reader import read_ranges_of_logs, without_expired
from tidelog_pipeline.archive.record_locations import (
    ARROW_TYPES,
    LOG_COLUMNS,
    present_offsets,
    read_locations,
    topic_of,
)
from tidelog_pipeline.archive.span_join import is_within_logs, with_topic_id
from tidelog_pipeline.archive.value_comparison import differences
from tidelog_pipeline.session import QUERY_ERRORS

# For the case that files or records disappear while they are counted.
_ATTEMPTS = 5

_Counts = Mapping[LogId, Mapping[int, Counted]]
_Compared = Mapping[LogId, tuple[Span, ...]]


class Reconciled(NamedTuple):
    """`damaged`: faults of files, by path."""

    damaged: Mapping[str, str]
    logs: list[LogReport]

    @property
    def is_sound(self) -> bool:
        return not self.damaged and not any(one.problems for one in self.logs)


class _Inspection(NamedTuple):
    """The archive and the logs at one moment. `wrong`: faults of files that readers see."""

    seen: ArchiveSnapshot
    now: LogsNow
    wrong: Mapping[str, str]

    @property
    def readable(self) -> list[str]:
        """The files that readers can read, including files that the archive does not know."""
        topics = {log.topic for log in self.seen.state.covered}
        return [p for p in self.seen.files if topic_of(p) in topics and p not in self.wrong]

    @property
    def damaged(self) -> dict[str, str]:
        missing = sorted(set(self.seen.state.paths) - set(self.seen.files))
        absent = dict.fromkeys(missing, "it is missing")
        return {**absent, **dict.fromkeys(self.unnamed, "no commit names it"), **self.wrong}

    @property
    def unnamed(self) -> list[str]:
        return unnamed(self.seen.files, self.seen.state)


def reconcile(
    spark: SparkSession,
    archive: ArchiveLog,
    bootstrap: str,
    *,
    deep: bool = False,
    fails_at_damage: bool = True,
) -> Reconciled:
    """Compares each log of the topics that the archive has read.

    Reads all compared records again from their leaders. A run may archive and compact
    meanwhile.

    - `deep`: reads every byte of the files, and compares every row with its record.
    - `fails_at_damage`: raises `RecordsDamagedError` for records that the log cannot return and
      that the archive does not know as damaged. Otherwise they are left out.

    Raises `TidelogError`.
    """
    root = archive.directory.root
    unreadable: dict[str, str] = {}
    for number in range(1, _ATTEMPTS + 1):
        seen = archive.snapshot()
        now = logs_now(bootstrap, {log.topic for log in seen.state.covered}, must_exist=False)
        there = set(seen.files)
        files = [file for file in seen.state.all_files if file.path in there]
        wrong = find_damaged(spark, root, files) if deep else absent_or_cut(root, files)
        if not wrong.keys() <= set(archive.load().paths) and number < _ATTEMPTS:
            # A compaction has removed them while they were read.
            continue
        known = {path: why for path, why in unreadable.items() if path in there}
        unnamed_files = unnamed(seen.files, seen.state)
        foreign = find_foreign(root, unnamed_files, ARROW_TYPES)
        wrong |= dict.fromkeys(foreign, "no commit names it, and it is no file of an archive")
        inspection = _Inspection(seen, now, {**known, **wrong})
        try:
            return _reconciled(spark, archive, bootstrap, inspection, deep, fails_at_damage)
        except QUERY_ERRORS:
            if number == _ATTEMPTS:
                raise
            if not _has_changed(archive, bootstrap, seen, now):
                # Spark reads only the needed parts of a file, and does not report which file
                # failed.
                others, found = as_found(root, sorted(set(unnamed_files) - foreign))
                found |= find_damaged(spark, root, [*files, *others])
                if found.keys() <= inspection.wrong.keys():
                    raise
                unreadable |= found
    raise AssertionError("the last attempt returns or raises")


def _has_changed(archive: ArchiveLog, bootstrap: str, seen: ArchiveSnapshot, now: LogsNow) -> bool:
    """Returns whether compaction removed files, or retention records, since they were listed."""
    if not set(seen.files) <= set(archive.snapshot().files):
        return True
    later = logs_now(bootstrap, {log.topic for log in now}, must_exist=False)
    return any(log not in later or later[log].first > span.first for log, span in now.items())


def _reconciled(
    spark: SparkSession,
    archive: ArchiveLog,
    bootstrap: str,
    inspection: _Inspection,
    deep: bool,
    fails_at_damage: bool,
) -> Reconciled:
    state, now = inspection.seen.state, inspection.now
    compared: _Compared = {log: compared_offsets(state, log, now.get(log)) for log in state.covered}
    # Read first, because retention may delete records that are compared.
    log_rows = _rows_of_log(spark, bootstrap, compared)
    in_log = _counted_in_log(log_rows, compared, state.expired_before_ms)
    rows = read_locations(spark, archive.directory.root, inspection.readable)
    in_files = _files(rows)
    archived = without_expired(rows, state.expired_before_ms)
    in_archive = _counts(archived, compared)
    full, damage = _holes(bootstrap, state, now)
    differing_logs = [log for log in compared if in_log.get(log) != in_archive.get(log)]
    unreadable = _unreadable(bootstrap, log_rows, compared, differing_logs)
    if unreadable:
        compared = {log: remaining(s, unreadable.get(log, ())) for log, s in compared.items()}
        in_archive = _counts(archived, compared)
        there = _counts(archived, unreadable)
        for log, spans in unreadable.items():
            count = sum(counted.rows for counted in there.get(log, {}).values())
            damage[log] = damage.get(log, NO_DAMAGE)._replace(archived=spans, rows=count)
    if fails_at_damage:
        _raise_new_damage(damage, state)
    differing: Mapping[LogId, list[Difference]] = {}
    if deep:
        form = stored_format(archive) or ValueFormat()
        root, before_ms = archive.directory.root, state.expired_before_ms
        differing = differences(
            spark, root, form, bootstrap, inspection.readable, compared, before_ms
        )
    topics = {topic_of(path) for path in inspection.unnamed}
    reports = [
        report(
            state,
            log,
            now.get(log),
            in_files.get(log, FileCounts(0, 0)),
            in_log.get(log, {}),
            in_archive.get(log, {}),
            full.get(log, ()),
            differing.get(log, ()),
            damage.get(log, NO_DAMAGE),
            has_unnamed_files=log.topic in topics,
        )
        # Partitions that no run has read yet are included.
        for log in sorted({*state.covered, *now})
    ]
    return Reconciled(inspection.damaged, reports)


def _files(rows: DataFrame) -> dict[LogId, FileCounts]:
    groups = rows.groupBy(*LOG_COLUMNS).agg(
        sf.count("*"), sf.count_distinct("leader_epoch", "offset")
    )
    return {LogId(*row[:3]): FileCounts(*row[3:]) for row in groups.collect()}


def _counts(rows: DataFrame, compared: _Compared) -> _Counts:
    found: dict[LogId, dict[int, Counted]] = {}
    groups = (
        rows.where(_is_compared(compared))
        .groupBy(*LOG_COLUMNS, "leader_epoch")
        .agg(sf.count("*"), sf.sum("offset"))
    )
    for *log, epoch, count, offset_sum in groups.collect():
        found.setdefault(LogId(*log), {})[epoch] = Counted(count, offset_sum)
    return found


def _is_compared(compared: _Compared) -> Column:
    return is_within_logs(SparkSession.active(), compared)


def _rows_of_log(spark: SparkSession, bootstrap: str, compared: _Compared) -> DataFrame | None:
    """Returns the log's rows; None: there is nothing to compare.

    Damaged records are searched for only if the counts differ from those of the files.
    """
    ranges = {log: Span(s[0].first, s[-1].end) for log, s in compared.items() if s}
    if not ranges:
        return None
    columns = "topic,partition,leader_epoch,offset,timestamp"
    read = read_ranges_of_logs(spark, bootstrap, ranges, columns=columns, onDamage="skip")
    return with_topic_id(read, {log.topic: log.topic_id for log in ranges})


def _counted_in_log(rows: DataFrame | None, compared: _Compared, expired_before_ms: int) -> _Counts:
    return {} if rows is None else _counts(without_expired(rows, expired_before_ms), compared)


def _unreadable(
    bootstrap: str, log_rows: DataFrame | None, compared: _Compared, logs: Iterable[LogId]
) -> dict[LogId, tuple[Span, ...]]:
    """Returns compared offsets of these logs that the log cannot return."""
    ranges = {log: compared[log] for log in logs if compared[log]}
    if log_rows is None or not ranges:
        return {}
    present = present_offsets(log_rows, ranges)
    gaps = {
        log: remaining(spans, [s for runs in present.get(log, {}).values() for s in runs])
        for log, spans in ranges.items()
    }
    return left_out(bootstrap, gaps)


def _raise_new_damage(damage: Mapping[LogId, LogDamage], state: ArchiveState) -> None:
    new = {
        log: united([*one.archived, *remaining(one.never_archived, state.damaged.get(log, ()))])
        for log, one in sorted(damage.items())
    }
    new = {log: spans for log, spans in new.items() if spans}
    if new:
        first = next(iter(new.values()))
        where = "; ".join(f"offsets {spans_text(spans)} of {log}" for log, spans in new.items())
        raise RecordsDamagedError(
            ErrorCode.RECORDS_DAMAGED,
            f"{where} were damaged on the last disk that held them, and cannot be compared; to "
            "compare the others set --on-data-loss to continue",
            first_offset=first[0].first,
            next_offset=first[0].end,
        )


def _holes(
    bootstrap: str, state: ArchiveState, now: LogsNow
) -> tuple[dict[LogId, tuple[Span, ...]], dict[LogId, LogDamage]]:
    """Returns the holes in which the log has records, and the damage in the others."""
    full: dict[LogId, tuple[Span, ...]] = {}
    damage: dict[LogId, LogDamage] = {}
    with new_prober(bootstrap) as consumer:
        prober = Prober(consumer)
        for log in state.covered:
            probed = {hole: prober.probe(log, hole) for hole in holes(state, log, now.get(log))}
            with_records = [hole for hole, one in probed.items() if one.record is not None]
            damaged = united(span for one in probed.values() for span in one.damaged)
            if with_records:
                full[log] = tuple(with_records)
            if damaged:
                damage[log] = LogDamage(never_archived=damaged)
    return full, damage
