"""Writes what is to be archived, checks it, and commits it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
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
from tidelog_pipeline.archive.commits import AddedFile, Archived, Commit, GoneRows
from tidelog_pipeline.archive.file_checks import described
from tidelog_pipeline.archive.planned_offsets import Planned, ends_of, offsets_of, planned_ranges
from tidelog_pipeline.archive.rows import PARTITIONED_BY, archive_rows
from tidelog_pipeline.archive.span_join import without_archived
from tidelog_pipeline.archive.spans import LogId, Span
from tidelog_pipeline.archive.staged_files import (
    StagedRows,
    check_whole,
    read_ranges,
    rows_of_files,
)
from tidelog_pipeline.archive.value_form import ValueForm


class _Staged(NamedTuple):
    location: str
    rows: list[StagedRows]
    files: tuple[AddedFile, ...]


class ArchiveWriter:
    """The one writer of an archive, whose lock it holds. `strict`: a value that is not of the
    schema is an error, and nothing of what came with it is archived."""

    def __init__(
        self, log: ArchiveLog, form: ValueForm, clock: Clock, *, strict: bool = False
    ) -> None:
        self._log = log
        self._form = form
        self._clock = clock
        self._strict = strict

    def write_batch(
        self, frame: DataFrame, batch: int, began: Mapping[LogId, int], *, exact: bool
    ) -> None:
        """A micro-batch of the query whose checkpoint the archive has; without effect where it was
        committed before. `exact`: nothing of it may be lost, so that all of its offsets count as
        read."""
        query = self._query_id()
        if self._log.state.has_batch(query, batch):
            return
        end = self._offsets(batch)
        assert end is not None, "Spark writes them before a micro-batch begins"
        planned = ends_of(end)
        if exact:
            planned = planned_ranges(self._offsets(batch - 1), end, began)
        self.write(frame, planned, query, batch)

    def write(
        self,
        frame: DataFrame,
        planned: Mapping[LogId, Planned],
        query: str = "",
        batch: int = -1,
    ) -> Commit:
        """Rows that are there already are left out."""
        log = self._log
        wanted = [(one, Span(at.first or 0, at.end)) for one, at in planned.items()]
        archived = Archived.within(log.state, wanted)
        staged = self._staged(without_archived(frame, archived), planned)
        commit = Commit(
            staged.location,
            self._clock.wall_ms(),
            staged.files,
            tuple(read_ranges(staged.rows, planned, [one.log for one in archived])),
            query,
            batch,
        )
        log.commit(commit)
        return commit

    def write_again(
        self, frame: DataFrame, logs: Iterable[LogId], removed: tuple[str, ...] = ()
    ) -> list[StagedRows]:
        """Rows that were archived before, and whose files are lost or damaged. `removed`: paths of
        such files. Returns what was written."""
        staged = self._staged(frame, logs)
        if staged.files or removed:
            self._commit_again(staged.location, staged.files, removed)
        return staged.rows

    def schema(self, spark: SparkSession) -> StructType:
        """Of the rows that it writes."""
        return archive_rows(spark.createDataFrame([], schema_of(COLUMNS)), self._form, {}).schema

    def write_salvaged(self, rows: DataFrame) -> list[StagedRows]:
        """As `write_again`, rows of files."""
        staged = self._staged_rows(rows)
        if staged.files:
            self._commit_again(staged.location, staged.files, ())
        return staged.rows

    def remove(self, paths: tuple[str, ...]) -> None:
        """From the table; they are kept in the state directory."""
        self._commit_again(self._log.stage(), (), paths)

    def _commit_again(
        self, staging: str, added: tuple[AddedFile, ...], removed: tuple[str, ...]
    ) -> None:
        now_ms = self._clock.wall_ms()
        self._log.commit(Commit(staging, now_ms, added, removed=removed, keeps_removed=True))

    def record_lost(self, lost: Iterable[GoneRows]) -> None:
        """They are not looked for again."""
        self._log.commit(Commit(self._log.stage(), self._clock.wall_ms(), lost=tuple(lost)))

    def _staged(self, frame: DataFrame, logs: Iterable[LogId]) -> _Staged:
        """Written and checked, and not committed."""
        ids = {one.topic: one.topic_id for one in logs}
        return self._staged_rows(archive_rows(frame, self._form, ids))

    def _staged_rows(self, rows: DataFrame) -> _Staged:
        location = self._log.stage()
        given = Observation()
        counted = rows.observe(given, sf.count(sf.lit(1)).alias("rows"))
        counted.write.mode("overwrite").partitionBy(*PARTITIONED_BY).parquet(location)
        staged = staged_rows(rows, location)
        check_whole(given.get.get("rows", 0), staged, location)
        if self._strict:
            _check_read(staged, self._form)
        files = described(rows.sparkSession, location, rows_of_files(staged))
        return _Staged(location, staged, tuple(files))

    def _query_id(self) -> str:
        text = self._log.own.read(f"{CHECKPOINT}/metadata")
        assert text is not None, "Spark writes it before a query begins"
        return str(json.loads(text)["id"])

    def _offsets(self, batch: int) -> StreamOffsets | None:
        path = f"{CHECKPOINT}/offsets/{batch}"
        text = self._log.own.read(path)
        return None if text is None else offsets_of(text, path)


def staged_rows(rows: DataFrame, location: str) -> list[StagedRows]:
    """Read from the files themselves, so that they are known to be whole and to be seen here."""
    # Spark would take a topic 007 for a number.
    schema = StructType(
        [
            *(field for field in rows.schema.fields if field.name not in PARTITIONED_BY),
            *(StructField(name, StringType()) for name in PARTITIONED_BY),
        ]
    )
    written = rows.sparkSession.read.schema(schema).parquet(location)
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


def _check_read(staged: list[StagedRows], form: ValueForm) -> None:
    unread = [one for one in staged if one.unread]
    if unread:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{sum(one.unread for one in unread)} values are not of the schema ({form}), the first "
            f"of them in {unread[0].log} from offset {unread[0].first} on, and nothing of this "
            "micro-batch was archived; without --strict they are archived as they are, in the "
            "column unread",
        )
