"""`archive repair`: finds lost and damaged files, and restores their rows.

It reads every file. Rows come from the topic, or else from the sound pages of damaged files, which
are moved to the state directory. Each step is a commit; after a crash the next repair continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from tidelog_pipeline.archive.archive_log import REMOVED, ArchiveLog
from tidelog_pipeline.archive.commits import GoneRows
from tidelog_pipeline.archive.file_checks import damaged
from tidelog_pipeline.archive.missing_records import MissingRows
from tidelog_pipeline.archive.places import find_missing
from tidelog_pipeline.archive.reconciliation import spans_text
from tidelog_pipeline.archive.restoring import Restored, Restorer
from tidelog_pipeline.archive.salvage import salvaged_rows
from tidelog_pipeline.archive.staged_files import rows_of_logs
from tidelog_pipeline.archive.writing import ArchiveWriter


class _Found(NamedTuple):
    """`damaged`: what is wrong with files, by path; `unknown`: files that no commit names."""

    damaged: Mapping[str, str]
    unknown: list[str]
    missing: list[MissingRows]

    @property
    def is_sound(self) -> bool:
        return not (self.damaged or self.unknown or self.missing)


class Repairer:
    """For the writer of the archive. `say` gets a line for people."""

    def __init__(
        self,
        spark: SparkSession,
        log: ArchiveLog,
        writer: ArchiveWriter,
        restorer: Restorer,
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._log = log
        self._writer = writer
        self._restorer = restorer
        self._say = say

    def plan(self) -> bool:
        """Reports what there is to repair, and changes nothing. Whether the archive is sound."""
        found = self._look()
        for one in self._restorer.plan(found.missing):
            self._tell_rows(one, "would be restored, if the topic has them")
            if one.lost is not None:
                self._tell_lost(one.lost, ", unless damaged files have them")
        return found.is_sound

    def repair(self) -> bool:
        """Whether the archive has all rows that it had."""
        found = self._look()
        restored = self._restorer.restore(found.missing, (*sorted(found.damaged), *found.unknown))
        for one in restored:
            self._tell_rows(one, "are restored from the topic")
        lost = [one.lost for one in restored if one.lost is not None]
        if lost:
            lost = self._salvage({one.log.topic for one in lost})
        if lost:
            self._writer.record_lost(lost)
        if self._log.own.names(REMOVED):
            self._say(f"Damaged and unknown files are kept below {self._log.own.at(REMOVED)}")
        if found.is_sound:
            self._say("Nothing is lost or damaged.")
        return not lost

    def _look(self) -> _Found:
        root, state = self._log.directory.root, self._log.state
        wrong = damaged(self._spark, root, state.all_files)
        there = [path for path in self._log.directory.files(".") if path.startswith("topic=")]
        unknown = sorted(set(there) - set(state.paths))
        for path, why in sorted(wrong.items()):
            self._say(f"{path}: {why}")
        for path in unknown:
            self._say(f"{path}: no commit names it")
        topics = {log.topic for log in state.covered}
        return _Found(wrong, unknown, self._missing(wrong, topics))

    def _missing(self, wrong: Collection[str], topics: Collection[str]) -> list[MissingRows]:
        log = self._log
        return find_missing(self._spark, log.directory.root, log.state, wrong, topics)

    def _salvage(self, topics: Collection[str]) -> list[GoneRows]:
        """Writes what damaged files have of what the topics do not have any more. Returns what is
        lost in the end."""
        log, missing = self._log, self._missing((), topics)
        records = [record for one in missing for record in one.records]
        kept = log.own.at(REMOVED)
        rows = salvaged_rows(self._spark, kept, self._writer.schema(self._spark), records)
        if rows is not None:
            written = self._writer.write_salvaged(rows)
            for one, count in rows_of_logs(written).items():
                self._say(f"{one}: {count} rows are restored from damaged files")
            missing = self._missing((), topics) if written else missing
        lost = self._restorer.lost(missing)
        for gone in lost:
            self._tell_lost(gone)
        return lost

    def _tell_rows(self, one: Restored, verb: str) -> None:
        if one.rows:
            self._say(f"{one.log}: {restored_text(one, verb)}")

    def _tell_lost(self, lost: GoneRows, unless: str = "") -> None:
        offsets = spans_text(lost.offsets)
        self._say(f"{lost.log}: {lost.rows} rows cannot be restored{unless}: offsets {offsets}")


def restored_text(one: Restored, verb: str = "are restored") -> str:
    return f"{one.rows} rows {verb}: offsets {spans_text(one.offsets)}"
