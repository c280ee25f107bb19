"""Writes records to an archive, checks the files, and commits them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from tidelog.client.clock import Clock
from tidelog.errors import ErrorCode, TidelogError
from tidelog.spark.columns import COLUMNS, schema_of
from tidelog.spark.stream_offsets import StreamOffsets
from tidelog_pipeline.archive.archive_log import CHECKPOINT, ArchiveLog
from tidelog_pipeline.archive.core.commits import (
    AddedFile,
    Archived,
    Commit,
    DamagedOffsets,
    ReadRange,
    RemovedRows,
)
from tidelog_pipeline.archive.core.planned_offsets import (
    Planned,
    ends_of,
    offsets_of,
    planned_ranges,
)
from tidelog_pipeline.archive.core.spans import LogId, Span, remaining
from tidelog_pipeline.archive.core.staged_files import (
    StagedRows,
    check_complete,
    read_ranges,
    rows_of_files,
    with_gaps,
)
from tidelog_pipeline.archive.core.value_format import ValueFormat
from tidelog_pipeline.archive.file_checks import describe_files
from tidelog_pipeline.archive.record_locations import (
    present_offsets,
    read_locations,
    runs_of_offsets,
)
from tidelog_pipeline.archive.rows import PARTITIONED_BY, archive_rows
from tidelog_pipeline.archive.span_join import drop_archived
from tidelog_pipeline.session import to_read

# Returns the offsets that a read has left out, of those at which it returned no record.
FindLeftOut = Callable[[Mapping[LogId, tuple[Span, ...]]], Mapping[LogId, tuple[Span, ...]]]

# Raises an error if a read of topics by their names was not of these logs.
CheckTopics = Callable[[Iterable[LogId]], None]


class _Staged(NamedTuple):
    location: str
    rows: list[StagedRows]
    files: tuple[AddedFile, ...]


class ArchiveWriter:
    """The only writer of an archive. It holds the lock.

    - `check_topics`: called between a read and its commit, except for a micro-batch, whose read
      names ids.
    - `strict`: a value that does not match the schema is an error, and nothing of its
      micro-batch is archived.
    - `find_left_out`: None: reads leave nothing out, and all planned offsets count as read.
    """

    def __init__(
        self,
        log: ArchiveLog,
        form: ValueFormat,
        clock: Clock,
        check_topics: CheckTopics,
        *,
        strict: bool = False,
        find_left_out: FindLeftOut | None = None,
    ) -> None:
        self._log = log
        self._form = form
        self._clock = clock
        self._check_topics = check_topics
        self._strict = strict
        self._find_left_out = find_left_out

    def write_batch(self, frame: DataFrame, batch: int, began: Mapping[LogId, int]) -> None:
        """Writes a micro-batch of the query whose checkpoint the archive has.

        Rows of a repeated micro-batch are not written again, because they are archived. The
        batch number cannot show that: a checkpoint that lost its end, in a power failure or a
        restore, reuses the number for other offsets.
        """
        query = self._query_id()
        end = self._offsets(batch)
        assert end is not None, "Spark writes them before a micro-batch begins"
        planned = planned_ranges(self._offsets(batch - 1), end, began)
        if self._find_left_out is None:
            self.write(frame, planned, query, batch)
        else:
            firsts = {log: at.first for log, at in planned.items() if at.first is not None}
            self.write(frame, ends_of(end), query, batch, firsts)

    def write(
        self,
        frame: DataFrame,
        planned: Mapping[LogId, Planned],
        query: str = "",
        batch: int = -1,
        firsts: Mapping[LogId, int] | None = None,
    ) -> Commit:
        """Writes and commits rows, without those that are archived already.

        - `firsts`: the planned starts of reads, if `planned` lacks them because records may be
          lost.
        """
        log = self._log
        spans = [(one, Span(at.first or 0, at.end)) for one, at in planned.items()]
        archived = Archived.within(log.state, spans)
        staged = self._staged(drop_archived(frame, archived), planned)
        if not query:
            self._check_topics(planned)
        left_out = self._left_out(frame.sparkSession, staged, planned, archived, firsts or {})
        commit = Commit(
            staged.location,
            self._clock.wall_ms(),
            staged.files,
            tuple(read_ranges(staged.rows, planned, [one.log for one in archived])),
            query,
            batch,
            damaged=tuple(DamagedOffsets(one, spans) for one, spans in sorted(left_out.items())),
        )
        log.commit(commit)
        return commit

    def _left_out(
        self,
        spark: SparkSession,
        staged: _Staged,
        planned: Mapping[LogId, Planned],
        archived: Iterable[Archived],
        firsts: Mapping[LogId, int],
    ) -> Mapping[LogId, tuple[Span, ...]]:
        there: dict[LogId, list[Span]] = {}
        for one in archived:
            there.setdefault(one.log, []).append(one.offsets)
        spans = with_gaps(staged.rows, planned, there, firsts)
        if self._find_left_out is None or not spans:
            return {}
        rows = read_locations(spark, Path(staged.location), [file.path for file in staged.files])
        for log, epochs in present_offsets(rows, spans).items():
            there.setdefault(log, []).extend(span for spans in epochs.values() for span in spans)
        gaps = {log: remaining([span], there.get(log, ())) for log, span in spans.items()}
        return self._find_left_out(gaps)

    def write_again(
        self, frame: DataFrame, logs: Collection[LogId], removed: tuple[str, ...] = ()
    ) -> list[StagedRows]:
        """Writes rows that were archived before and whose files are lost or damaged.

        Returns the written rows.

        - `removed`: paths of such files.
        """
        staged = self._staged(frame, logs)
        self._check_topics(logs)
        if staged.files or removed:
            self._commit_again(staged.location, staged.files, removed)
        return staged.rows

    def schema(self, spark: SparkSession) -> StructType:
        """Returns the schema of the rows that it writes."""
        return archive_rows(spark.createDataFrame([], schema_of(COLUMNS)), self._form, {}).schema

    def write_salvaged(self, rows: DataFrame) -> list[StagedRows]:
        """As `write_again`, for rows of files."""
        staged = self._staged_rows(rows)
        if staged.files:
            self._commit_again(staged.location, staged.files, ())
        return staged.rows

    def write_found(self, rows: DataFrame) -> Mapping[LogId, Mapping[int, Sequence[Span]]]:
        """Writes rows of files that no commit names. Returns their runs of offsets."""
        staged = self._staged_rows(rows)
        if not staged.files:
            return {}
        paths = [file.path for file in staged.files]
        found = runs_of_offsets(read_locations(rows.sparkSession, Path(staged.location), paths))
        self._commit_found(staged.location, staged.files, found)
        return found

    def record_found(self, found: Mapping[LogId, Mapping[int, Sequence[Span]]]) -> None:
        """Records runs of offsets whose rows are in known files."""
        self._commit_found(self._log.stage(), (), found)

    def _commit_found(
        self,
        staging: str,
        added: tuple[AddedFile, ...],
        found: Mapping[LogId, Mapping[int, Sequence[Span]]],
    ) -> None:
        read = [
            ReadRange(log, run, run.size, 0, {epoch: run})
            for log, epochs in sorted(found.items())
            for epoch, runs in epochs.items()
            for run in runs
        ]
        self._log.commit(Commit(staging, self._clock.wall_ms(), added, tuple(read)))

    def remove(self, paths: tuple[str, ...]) -> None:
        """Removes files from the table; they are kept in the state directory."""
        self._commit_again(self._log.stage(), (), paths)

    def _commit_again(
        self, staging: str, added: tuple[AddedFile, ...], removed: tuple[str, ...]
    ) -> None:
        now_ms = self._clock.wall_ms()
        self._log.commit(Commit(staging, now_ms, added, removed=removed, keeps_removed=True))

    def record_reopened(self, logs: Iterable[LogId]) -> None:
        """Records that the lost rows of these logs are to be restored again."""
        self._log.commit(Commit(self._log.stage(), self._clock.wall_ms(), reopened=tuple(logs)))

    def record_gone(self, lost: Iterable[RemovedRows], damaged: Iterable[DamagedOffsets]) -> None:
        """Records rows that are given up, except that a back-fill reads `damaged` ones again."""
        now_ms = self._clock.wall_ms()
        commit = Commit(self._log.stage(), now_ms, lost=tuple(lost), damaged=tuple(damaged))
        self._log.commit(commit)

    def _staged(self, frame: DataFrame, logs: Iterable[LogId]) -> _Staged:
        """Writes and checks rows without committing them."""
        ids = {one.topic: one.topic_id for one in logs}
        return self._staged_rows(archive_rows(frame, self._form, ids))

    def _staged_rows(self, rows: DataFrame) -> _Staged:
        location = self._log.stage()
        given = Observation()
        counted = rows.observe(given, sf.count(sf.lit(1)).alias("rows"))
        counted.write.mode("overwrite").partitionBy(*PARTITIONED_BY).parquet(location)
        staged = staged_rows(rows, location)
        check_complete(given.get.get("rows", 0), staged, location)
        if self._strict:
            _check_read(staged, self._form)
        files = describe_files(rows.sparkSession, location, rows_of_files(staged))
        return _Staged(location, staged, tuple(files))

    def _query_id(self) -> str:
        text = self._log.state_directory.read(f"{CHECKPOINT}/metadata")
        assert text is not None, "Spark writes it before a query begins"
        return str(json.loads(text)["id"])

    def _offsets(self, batch: int) -> StreamOffsets | None:
        path = f"{CHECKPOINT}/offsets/{batch}"
        text = self._log.state_directory.read(path)
        return None if text is None else offsets_of(text, path)


def staged_rows(rows: DataFrame, location: str) -> list[StagedRows]:
    """Reads the rows from the written files: rows that the driver cannot see are missing."""
    # Spark would infer that a topic 007 is a number.
    schema = StructType(
        [
            *(field for field in rows.schema.fields if field.name not in PARTITIONED_BY),
            *(StructField(name, StringType()) for name in PARTITIONED_BY),
        ]
    )
    written = rows.sparkSession.read.schema(schema).parquet(to_read(location))
    unread = sf.col("unread") if "unread" in schema.fieldNames() else sf.lit(None)
    groups = written.groupBy(
        sf.col("_metadata.file_path").alias("path"),
        "topic",
        "topic_id",
        "partition",
        "leader_epoch",
    ).agg(
        sf.count("*").alias("rows"),
        sf.count(unread).alias("unread"),
        sf.min("offset").alias("first"),
        sf.max("offset").alias("last"),
    )
    return [
        StagedRows(
            _below(location, group.path),
            LogId(group.topic, group.topic_id, group.partition),
            group.leader_epoch,
            group.rows,
            group.unread,
            group.first,
            group.last,
        )
        for group in groups.collect()
    ]


def _below(location: str, uri: str) -> str:
    return str(Path(unquote(urlparse(uri).path)).relative_to(location))


def _check_read(staged: list[StagedRows], form: ValueFormat) -> None:
    unread = [one for one in staged if one.unread]
    if unread:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{sum(one.unread for one in unread)} values do not match the schema ({form}), the "
            f"first in {unread[0].log} from offset {unread[0].first} on, and nothing of this "
            "micro-batch was archived; without --strict the column unread gets their bytes",
        )
