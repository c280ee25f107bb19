"""The commits of an archive, and the state that is their sum. Pure.

A commit names the offsets that it has read and the files that it adds and removes, or the files
that replace those of an hour. Creating the commit's file is the commit point: before that,
readers do not see its files, and later steps can be repeated (`archive_log`). Its form is in
`commit_json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from tidelog_pipeline.archive.core.spans import LogId, Span, fewer, remaining, united

# Bound for a partition: if times are not in the order of offsets, the offsets of expired rows have
# gaps.
MAX_EXPIRED_SPANS = 64


class AddedFile(NamedTuple):
    """A file that a commit adds.

    - `path`: below the archive, where readers see it.
    - `sha256`: of its content, in hexadecimal; empty in commits of releases that did not record
      it.
    """

    path: str
    rows: int
    size_bytes: int
    sha256: str = ""

    @property
    def hour(self) -> str:
        """The directory of the file."""
        return self.path.rpartition("/")[0]


class ReadRange(NamedTuple):
    """A range of offsets that a commit has read.

    - `rows`: number of records in the range that this commit archived.
    - `epochs`: the offsets of each leader epoch.
    """

    log: LogId
    offsets: Span
    rows: int
    unread: int
    epochs: Mapping[int, Span]


class RemovedRows(NamedTuple):
    """Archived rows that are no longer there.

    - `offsets`: offsets at which the archive has no rows since then. Some may never have had a
      record.
    """

    log: LogId
    rows: int
    offsets: tuple[Span, ...]


class DamagedOffsets(NamedTuple):
    """Offsets whose records the last disk that held them has damaged.

    The log could not return these records, so they are not archived. A back-fill reads them
    again.

    - `rows`: how many of them the archive had until their file was lost.
    """

    log: LogId
    offsets: tuple[Span, ...]
    rows: int = 0


class Commit(NamedTuple):
    """A change of the archive.

    - `staging`: the directory of its files until they are published.
    - `query`, `batch`: the micro-batch of the commit, or "" and -1.
    - `replaces`: the hour whose files are replaced by `added`.
    - `removed`: paths of files to remove, or to move out of readers' sight if `keeps_removed`.
      The archive need not know them.
    - `expired`: rows that were removed with their files on purpose.
    - `expired_before_ms`: rows of earlier hours are expired from now on; 0: not a commit of
      `expire`.
    - `lost`: rows that neither files nor logs have any more.
    - `damaged`: offsets that were left out of the read ranges.
    - `reopened`: logs whose lost rows are missing rows again, because a log has some of them.
    """

    staging: str
    committed_at_ms: int
    added: tuple[AddedFile, ...] = ()
    read: tuple[ReadRange, ...] = ()
    query: str = ""
    batch: int = -1
    replaces: str = ""
    removed: tuple[str, ...] = ()
    keeps_removed: bool = False
    expired: tuple[RemovedRows, ...] = ()
    expired_before_ms: int = 0
    lost: tuple[RemovedRows, ...] = ()
    damaged: tuple[DamagedOffsets, ...] = ()
    reopened: tuple[LogId, ...] = ()


@dataclass(slots=True)
class ArchiveState:
    """The sum of all commits up to `number`.

    - `files`: by hour and path.
    - `covered`: offsets that were read.
    - `epochs`: offsets of archived records, by log and leader epoch.
    - `rows`: number of rows in the files.
    - `unread`: number of records that do not match the schema.
    - `expired`, `lost`: rows that are no longer there, on purpose and otherwise.
    - `damaged`: offsets that were left out; they are not `covered`.
    """

    number: int = 0
    files: dict[str, dict[str, AddedFile]] = field(default_factory=dict)
    covered: dict[LogId, tuple[Span, ...]] = field(default_factory=dict)
    epochs: dict[LogId, dict[int, tuple[Span, ...]]] = field(default_factory=dict)
    rows: dict[LogId, int] = field(default_factory=dict)
    unread: dict[LogId, int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    expired: dict[LogId, RemovedRows] = field(default_factory=dict)
    expired_before_ms: int = 0
    lost: dict[LogId, RemovedRows] = field(default_factory=dict)
    damaged: dict[LogId, tuple[Span, ...]] = field(default_factory=dict)

    def apply(self, commit: Commit) -> None:
        self.number += 1
        if commit.replaces:
            self.files[commit.replaces] = {}
        for file in commit.added:
            self.files.setdefault(file.hour, {})[file.path] = file
        for path in commit.removed:
            self._apply_removed(path)
        for read in commit.read:
            self._apply_read(read)
        if commit.query:
            self.batches[commit.query] = commit.batch
        self.expired_before_ms = max(self.expired_before_ms, commit.expired_before_ms)
        for gone in commit.expired:
            self._apply_gone(gone, self.expired, MAX_EXPIRED_SPANS)
        for gone in commit.lost:
            self._apply_gone(gone, self.lost)
        for one in commit.damaged:
            self._apply_damaged(one)
        for log in commit.reopened:
            if log in self.lost:
                self.rows[log] += self.lost.pop(log).rows

    def apply_after_gap(self, commit: Commit) -> None:
        """As `apply`, for a commit behind lost ones.

        Rows that it removes and that no known commit has read were archived by a lost commit.
        """
        for log, rows, offsets in (
            *commit.expired,
            *commit.lost,
            *((one.log, one.rows, one.offsets) for one in commit.damaged if one.rows),
        ):
            unknown = remaining(offsets, self.covered.get(log, ()))
            self.covered[log] = united([*self.covered.get(log, ()), *unknown])
            known = self.rows.get(log, 0)
            self.rows[log] = known + min(rows, sum(span.size for span in unknown))
            self.unread.setdefault(log, 0)
            self.epochs.setdefault(log, {})
        self.apply(commit)

    def _apply_removed(self, path: str) -> None:
        hour = path.rpartition("/")[0]
        of_hour = self.files.get(hour, {})
        of_hour.pop(path, None)
        if not of_hour:
            self.files.pop(hour, None)

    def _apply_gone(
        self, gone: RemovedRows, into: dict[LogId, RemovedRows], most: int | None = None
    ) -> None:
        log = gone.log
        before = into.get(log, RemovedRows(log, 0, ()))
        offsets = united([*before.offsets, *gone.offsets])
        into[log] = RemovedRows(log, before.rows + gone.rows, fewer(offsets, most or len(offsets)))
        self.rows[log] = self.rows.get(log, 0) - gone.rows

    def _apply_read(self, read: ReadRange) -> None:
        log = read.log
        self.covered[log] = united([*self.covered.get(log, ()), read.offsets])
        self.rows[log] = self.rows.get(log, 0) + read.rows
        self.unread[log] = self.unread.get(log, 0) + read.unread
        epochs = self.epochs.setdefault(log, {})
        for epoch, span in read.epochs.items():
            epochs[epoch] = united([*epochs.get(epoch, ()), span])
        self._set_damaged(log, remaining(self.damaged.get(log, ()), [read.offsets]))

    def _apply_damaged(self, one: DamagedOffsets) -> None:
        log = one.log
        self.covered[log] = remaining(self.covered.get(log, ()), one.offsets)
        self.rows[log] = self.rows.get(log, 0) - one.rows
        self.unread.setdefault(log, 0)
        epochs = self.epochs.setdefault(log, {})
        for epoch, spans in epochs.items():
            epochs[epoch] = remaining(spans, one.offsets)
        self._set_damaged(log, united([*self.damaged.get(log, ()), *one.offsets]))

    def _set_damaged(self, log: LogId, offsets: tuple[Span, ...]) -> None:
        self.damaged.pop(log, None)
        if offsets:
            self.damaged[log] = offsets

    def read_to(self, log: LogId) -> int:
        """Returns the offset after the last one that was read or left out."""
        known = [*self.covered.get(log, ()), *self.damaged.get(log, ())]
        return max((span.end for span in known), default=0)

    @property
    def all_files(self) -> list[AddedFile]:
        """All files, ordered by path."""
        return sorted(file for files in self.files.values() for file in files.values())

    @property
    def paths(self) -> list[str]:
        """The sorted paths of all files."""
        return [file.path for file in self.all_files]


class Archived(NamedTuple):
    """Archived records of one leader epoch."""

    log: LogId
    leader_epoch: int
    offsets: Span

    @classmethod
    def all_of(cls, state: ArchiveState) -> list[Self]:
        return [
            cls(log, epoch, span)
            for log, epochs in sorted(state.epochs.items())
            for epoch, spans in sorted(epochs.items())
            for span in spans
        ]

    @classmethod
    def within(cls, state: ArchiveState, ranges: Iterable[tuple[LogId, Span]]) -> list[Self]:
        """Returns the archived records within ranges that are about to be read."""
        return [
            cls(log, epoch, span)
            for log, offsets in ranges
            for epoch, spans in sorted(state.epochs.get(log, {}).items())
            for span in spans
            if span.first < offsets.end and offsets.first < span.end
        ]
