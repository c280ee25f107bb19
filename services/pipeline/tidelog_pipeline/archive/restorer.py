"""Restores the rows of lost or damaged files, as far as the logs still have them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from tidelog_pipeline.archive.archive_writer import ArchiveWriter
from tidelog_pipeline.archive.cluster_logs import LogsNow, logs_now
from tidelog_pipeline.archive.core.commits import (
    Archived,
    ArchiveState,
    DamagedOffsets,
    RemovedRows,
)
from tidelog_pipeline.archive.core.missing_records import (
    MissingRows,
    RestoredRows,
    lost_rows,
    readable,
    reads,
    without_damaged,
)
from tidelog_pipeline.archive.core.spans import LogId, Span, common, united
from tidelog_pipeline.archive.core.staged_files import StagedRows
from tidelog_pipeline.archive.damaged_records import left_out
from tidelog_pipeline.archive.log_reader import read_ranges_of_logs, without_expired
from tidelog_pipeline.archive.span_join import keep_archived


class Restored(NamedTuple):
    """The restored rows of one log. `lost`: rows that neither files nor logs have any more."""

    log: LogId
    rows: int
    offsets: tuple[Span, ...]
    lost: RemovedRows | None


@dataclass(slots=True)
class _Written:
    rows: int = 0
    offsets: list[Span] = field(default_factory=list)

    def add(self, staged: StagedRows) -> None:
        self.rows += staged.rows
        self.offsets.append(Span(staged.first, staged.last + 1))


class Restorer:
    """Restores rows through the writer of the archive. `state`: that of the archive."""

    def __init__(
        self,
        spark: SparkSession,
        writer: ArchiveWriter,
        bootstrap: str,
        max_offsets: int,
        state: ArchiveState,
    ) -> None:
        self._spark = spark
        self._writer = writer
        self._bootstrap = bootstrap
        self._max_offsets = max_offsets
        self._state = state

    def restore(
        self,
        missing: Iterable[MissingRows],
        removed: Collection[str] = (),
        within: LogsNow | None = None,
    ) -> list[Restored]:
        """Restores the missing rows. After a crash, a second call continues with the rest.

        - `removed`: files that the first commit removes from the table.
        - `within`: bounds on what is read.
        """
        listed = list(missing)
        now = self._now(listed)
        restorable = {one.log: _restorable(one, now, within) for one in listed}
        records = [record for one in listed for record in one.records]
        written = {one.log: _Written() for one in listed}
        to_remove = tuple(removed)
        for part in reads(
            {log: spans for log, spans in restorable.items() if spans}, self._max_offsets
        ):
            for staged in self._write(part, records, to_remove):
                written[staged.log].add(staged)
            to_remove = ()
        if to_remove:
            self._writer.remove(to_remove)
        return [self._restored(one, written[one.log], now.get(one.log)) for one in listed]

    def plan(self, missing: Iterable[MissingRows]) -> list[Restored]:
        """Returns the result of `restore`, assuming that the logs have a record at each offset."""
        listed = list(missing)
        now = self._now(listed)
        found = []
        for one in listed:
            there = readable(one, now.get(one.log))
            rows = min(one.rows, sum(span.size for span in there))
            found.append(self._restored(one, _Written(rows, list(there)), now.get(one.log)))
        return found

    def damaged(self, missing: Iterable[MissingRows]) -> list[DamagedOffsets]:
        """Returns missing rows that the logs cannot return because they are damaged there."""
        listed = list(missing)
        now = self._now(listed)
        gaps = {one.log: readable(one, now.get(one.log)) for one in listed}
        found = left_out(self._bootstrap, gaps)
        return [
            DamagedOffsets(one.log, spans, min(one.rows, sum(span.size for span in spans)))
            for one in listed
            if (spans := found.get(one.log))
        ]

    def lost(
        self, missing: Iterable[MissingRows], damaged: Iterable[DamagedOffsets] = ()
    ) -> list[RemovedRows]:
        """Returns what is lost if no more rows are written, except for what is `damaged`."""
        known = {one.log: one for one in damaged}
        listed = [
            without_damaged(one, known[one.log]) if one.log in known else one for one in missing
        ]
        now = self._now(listed)
        found = (self._restored(one, _Written(), now.get(one.log)).lost for one in listed)
        return [one for one in found if one is not None]

    def found_again(self, given_up: Iterable[MissingRows]) -> list[LogId]:
        """Returns the logs that have some of these rows.

        An earlier repair may have asked another cluster.
        """
        listed = list(given_up)
        now = self._now(listed)
        spans = {one.log: readable(one, now.get(one.log)) for one in listed}
        records = [record for one in listed for record in one.records]
        ids = {log.topic: log.topic_id for log in spans if log in now}
        found: set[LogId] = set()
        for part in reads({log: s for log, s in spans.items() if s}, self._max_offsets):
            rows = self._read(part, records).select("topic", "partition").distinct()
            found |= {LogId(topic, ids[topic], number) for topic, number in rows.collect()}
        return sorted(found)

    def _now(self, missing: Iterable[MissingRows]) -> LogsNow:
        topics = {one.log.topic for one in missing}
        return logs_now(self._bootstrap, topics, must_exist=False)

    def _write(
        self, part: Mapping[LogId, Span], records: Iterable[Archived], removed: tuple[str, ...]
    ) -> list[StagedRows]:
        return self._writer.write_again(self._read(part, records), part, removed)

    def _read(self, part: Mapping[LogId, Span], records: Iterable[Archived]) -> DataFrame:
        # Records that retention deletes meanwhile, or that are damaged, count as lost afterwards.
        frame = read_ranges_of_logs(
            self._spark,
            self._bootstrap,
            part,
            includeHeaders="true",
            failOnDataLoss="false",
            onDamage="skip",
        )
        chosen = keep_archived(frame, [one for one in records if one.log in part])
        return without_expired(chosen, self._state.expired_before_ms)

    def _restored(self, missing: MissingRows, written: _Written, now: Span | None) -> Restored:
        log, offsets = missing.log, united(written.offsets)
        expired = self._state.expired[log].offsets if log in self._state.expired else ()
        lost = lost_rows(missing, RestoredRows(written.rows, offsets), now, expired)
        return Restored(log, written.rows, offsets, lost)


def _restorable(missing: MissingRows, now: LogsNow, within: LogsNow | None) -> tuple[Span, ...]:
    spans = readable(missing, now.get(missing.log))
    if within is None:
        return spans
    return common(within[missing.log], spans) if missing.log in within else ()
