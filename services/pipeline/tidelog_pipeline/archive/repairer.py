"""`archive repair`: finds lost and damaged files, and restores their rows.

It reads every file. Rows come from the topic, or else from the intact pages of damaged files.
Damaged files are moved to the state directory, and so are files that no commit names. Rows of
the latter that no commit has archived, because it was lost or damaged, are written again. Each
step is a commit; after a crash, the next repair continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import SparkSession

from tidelog_pipeline.archive.archive_log import REMOVED, ArchiveLog
from tidelog_pipeline.archive.archive_writer import ArchiveWriter
from tidelog_pipeline.archive.core.commits import Archived, DamagedOffsets, RemovedRows
from tidelog_pipeline.archive.core.missing_records import MissingRows
from tidelog_pipeline.archive.core.reconciliation import spans_text
from tidelog_pipeline.archive.core.spans import LogId, Span, united
from tidelog_pipeline.archive.core.staged_files import rows_of_logs
from tidelog_pipeline.archive.file_checks import find_damaged
from tidelog_pipeline.archive.log_reader import without_expired
from tidelog_pipeline.archive.record_locations import (
    find_given_up_rows,
    find_missing_rows,
    read_locations,
    runs_of_offsets,
)
from tidelog_pipeline.archive.restorer import Restored, Restorer
from tidelog_pipeline.archive.salvage import salvaged_rows
from tidelog_pipeline.archive.span_join import drop_archived, keep_archived


class _Found(NamedTuple):
    """The faults of an archive.

    - `damaged`: faults of files, by path.
    - `unknown`: files that no commit names.
    """

    damaged: Mapping[str, str]
    unknown: list[str]
    missing: list[MissingRows]

    @property
    def is_sound(self) -> bool:
        return not (self.damaged or self.unknown or self.missing)


class Repairer:
    """Repairs an archive, as its writer. `print_line`: prints a line for people."""

    def __init__(
        self,
        spark: SparkSession,
        log: ArchiveLog,
        writer: ArchiveWriter,
        restorer: Restorer,
        print_line: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._log = log
        self._writer = writer
        self._restorer = restorer
        self._print = print_line

    def plan(self) -> bool:
        """Reports what to repair, and changes nothing. Returns whether the archive is sound."""
        found = self._inspect()
        for one in self._restorer.plan(found.missing):
            self._print_restored(one, "would be restored, if the topic has them")
            if one.lost is not None:
                self._print_lost(one.lost, ", unless damaged files have them")
        return not self._found_again(found.damaged) and found.is_sound

    def repair(self) -> bool:
        """Repairs the archive. Returns whether it has all rows that it had."""
        found = self._inspect()
        is_sound = found.is_sound
        found_again = self._found_again(found.damaged)
        if found_again:
            self._writer.record_reopened(found_again)
        if self._take_known_files(found.damaged) or found_again:
            is_sound = False
            found = found._replace(missing=self._missing(found.damaged, self._topics()))
        restored = self._restorer.restore(found.missing, (*sorted(found.damaged), *found.unknown))
        for one in restored:
            self._print_restored(one, "are restored from the topic")
        lost = [one.lost for one in restored if one.lost is not None]
        damaged: list[DamagedOffsets] = []
        if lost:
            lost, damaged = self._salvage({one.log.topic for one in lost})
        if lost or damaged:
            self._writer.record_gone(lost, damaged)
        is_sound &= not self._take_removed_files()
        if self._log.state_directory.names(REMOVED):
            self._print(
                f"Damaged and unknown files are kept below {self._log.state_directory.at(REMOVED)}"
            )
        if is_sound:
            self._print("Nothing is lost or damaged.")
        return not (lost or damaged)

    def _inspect(self) -> _Found:
        root, state = self._log.directory.root, self._log.state
        wrong = find_damaged(self._spark, root, state.all_files)
        unknown = self._log.unnamed_files()
        for path, why in sorted(wrong.items()):
            self._print(f"{path}: {why}")
        for path in unknown:
            self._print(f"{path}: no commit names it")
        return _Found(wrong, unknown, self._missing(wrong, self._topics()))

    def _found_again(self, damaged: Collection[str]) -> list[LogId]:
        """Returns the logs that have rows which an earlier repair has given up."""
        log = self._log
        rows = find_given_up_rows(self._spark, log.directory.root, log.state, damaged)
        found = self._restorer.found_again(rows)
        for one in found:
            self._print(f"{one}: the topic has some of {log.state.lost[one].rows} lost rows again")
        return found

    def _topics(self) -> set[str]:
        return {log.topic for log in self._log.state.covered}

    def _names(self) -> dict[str, str]:
        """Returns the names of topics by their ids."""
        return {log.topic_id: log.topic for log in self._log.state.covered}

    def _take_known_files(self, damaged: Collection[str]) -> bool:
        """Records rows of intact files that no readable commit has archived.

        A compaction has copied them from files whose own commit is lost. Returns whether there
        were any.
        """
        log = self._log
        sound = [path for path in log.state.paths if path not in damaged]
        rows = read_locations(self._spark, log.directory.root, sound)
        found = runs_of_offsets(drop_archived(rows, Archived.all_of(log.state)))
        if found:
            self._writer.record_found(found)
        self._print_findings(found)
        return bool(found)

    def _take_removed_files(self) -> bool:
        """Writes rows of removed files that no readable commit has archived.

        Returns whether there were any.
        """
        log = self._log
        schema = self._writer.schema(self._spark)
        rows = salvaged_rows(self._spark, log.state_directory.at(REMOVED), schema, self._names())
        if rows is None:
            return False
        unknown = drop_archived(rows, Archived.all_of(log.state))
        found = self._writer.write_found(without_expired(unknown, log.state.expired_before_ms))
        self._print_findings(found)
        return bool(found)

    def _print_findings(self, found: Mapping[LogId, Mapping[int, Sequence[Span]]]) -> None:
        for log, epochs in sorted(found.items()):
            offsets = united(run for runs in epochs.values() for run in runs)
            rows = sum(run.size for runs in epochs.values() for run in runs)
            self._print(
                f"{log}: {rows} rows of files whose commit is lost are archived again: offsets "
                f"{spans_text(offsets)}"
            )

    def _missing(self, wrong: Collection[str], topics: Collection[str]) -> list[MissingRows]:
        log = self._log
        return find_missing_rows(self._spark, log.directory.root, log.state, wrong, topics)

    def _salvage(self, topics: Collection[str]) -> tuple[list[RemovedRows], list[DamagedOffsets]]:
        """Writes rows of damaged files that the topics do not have any more.

        Returns the rows that are lost, and those that are also damaged in the log.
        """
        log, missing = self._log, self._missing((), topics)
        records = [record for one in missing for record in one.records]
        kept = log.state_directory.at(REMOVED)
        schema = self._writer.schema(self._spark)
        rows = salvaged_rows(self._spark, kept, schema, self._names())
        if rows is not None and records:
            chosen = without_expired(keep_archived(rows, records), log.state.expired_before_ms)
            written = self._writer.write_salvaged(chosen)
            for one, count in rows_of_logs(written).items():
                self._print(f"{one}: {count} rows are restored from damaged files")
            missing = self._missing((), topics) if written else missing
        damaged = self._restorer.damaged(missing)
        lost = self._restorer.lost(missing, damaged)
        for gone in lost:
            self._print_lost(gone)
        for found in damaged:
            self._print(
                f"{found.log}: {found.rows} rows cannot be restored, since their records are "
                f"damaged in the log, too: offsets {spans_text(found.offsets)}"
            )
        return lost, damaged

    def _print_restored(self, one: Restored, verb: str) -> None:
        if one.rows:
            self._print(f"{one.log}: {restored_summary(one, verb)}")

    def _print_lost(self, lost: RemovedRows, unless: str = "") -> None:
        offsets = spans_text(lost.offsets)
        self._print(f"{lost.log}: {lost.rows} rows cannot be restored{unless}: offsets {offsets}")


def restored_summary(one: Restored, verb: str = "are restored") -> str:
    return f"{one.rows} rows {verb}: offsets {spans_text(one.offsets)}"
