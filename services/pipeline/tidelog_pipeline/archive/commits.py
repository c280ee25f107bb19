"""What an archive consists of: commits, one after another, and what they add up to. Pure.

A commit says which offsets it has read and which files it adds and removes, or which files take the
place of those of one hour. Its file is what makes it: before that nobody sees what it adds, and
what is left to do afterwards can be done again (`archive_log`). Its form is in `commit_json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from tidelog_pipeline.archive.spans import LogId, Span, fewer, remaining, united

# Of a partition: where times are not in the order of offsets, those of expired rows have gaps.
MAX_EXPIRED_SPANS = 64


class AddedFile(NamedTuple):
    """`path`: below the archive, where readers see it. `sha256`: of its content, in hexadecimal;
    "" in commits of releases that did not record it."""

    path: str
    rows: int
    size_bytes: int
    sha256: str = ""

    @property
    def hour(self) -> str:
        """The directory that it lies in."""
        return self.path.rpartition("/")[0]


class ReadRange(NamedTuple):
    """`rows`: of them those that were archived by this commit; `epochs`: which offsets are of
    which leader epoch."""

    log: LogId
    offsets: Span
    rows: int
    unread: int
    epochs: Mapping[int, Span]


class GoneRows(NamedTuple):
    """Rows that were archived and are no longer there. `offsets`: those at which the archive has
    no row since, some of which may never have had a record."""

    log: LogId
    rows: int
    offsets: tuple[Span, ...]


class DamagedOffsets(NamedTuple):
    """Offsets whose records the log could not give, since the last disk that held them has damaged
    them: they are not archived, and a back-fill reads them again. `rows`: how many of them the
    archive had until their file was lost."""

    log: LogId
    offsets: tuple[Span, ...]
    rows: int = 0


class Commit(NamedTuple):
    """`staging`: the directory that holds its files until they are published. `query` and
    `batch`: of the micro-batch that it is of, or "" and -1. `replaces`: the hour whose files
    these take the place of.

    `removed`: paths of files that are removed, or moved out of readers' sight if
    `keeps_removed`; the archive need not know them. `expired`: rows of removed files that were
    removed on purpose; `expired_before_ms`: rows of earlier hours are expired from now on; 0: this
    is not a commit of `expire`. `lost`: rows that neither files nor logs have any more.
    `damaged`: what was left out of the ranges that it has read."""

    staging: str
    committed_at_ms: int
    added: tuple[AddedFile, ...] = ()
    read: tuple[ReadRange, ...] = ()
    query: str = ""
    batch: int = -1
    replaces: str = ""
    removed: tuple[str, ...] = ()
    keeps_removed: bool = False
    expired: tuple[GoneRows, ...] = ()
    expired_before_ms: int = 0
    lost: tuple[GoneRows, ...] = ()
    damaged: tuple[DamagedOffsets, ...] = ()


@dataclass(slots=True)
class ArchiveState:
    """All commits up to `number`. `files`: of each hour, by path. `covered`: the offsets that were
    read; `epochs`: by log and leader epoch, those whose records were archived. `rows`: those that
    the files have. `unread`: records that their schema could not read. `expired`, `lost`: rows
    that are no longer there, on purpose and otherwise. `damaged`: offsets that were left out, and
    are not `covered`."""

    number: int = 0
    files: dict[str, dict[str, AddedFile]] = field(default_factory=dict)
    covered: dict[LogId, tuple[Span, ...]] = field(default_factory=dict)
    epochs: dict[LogId, dict[int, tuple[Span, ...]]] = field(default_factory=dict)
    rows: dict[LogId, int] = field(default_factory=dict)
    unread: dict[LogId, int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    expired: dict[LogId, GoneRows] = field(default_factory=dict)
    expired_before_ms: int = 0
    lost: dict[LogId, GoneRows] = field(default_factory=dict)
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

    def _apply_removed(self, path: str) -> None:
        hour = path.rpartition("/")[0]
        of_hour = self.files.get(hour, {})
        of_hour.pop(path, None)
        if not of_hour:
            self.files.pop(hour, None)

    def _apply_gone(
        self, gone: GoneRows, into: dict[LogId, GoneRows], most: int | None = None
    ) -> None:
        log = gone.log
        before = into.get(log, GoneRows(log, 0, ()))
        offsets = united([*before.offsets, *gone.offsets])
        into[log] = GoneRows(log, before.rows + gone.rows, fewer(offsets, most or len(offsets)))
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
        """After the last offset that was read or left out."""
        known = [*self.covered.get(log, ()), *self.damaged.get(log, ())]
        return max((span.end for span in known), default=0)

    @property
    def all_files(self) -> list[AddedFile]:
        """In the order of their paths."""
        return sorted(file for files in self.files.values() for file in files.values())

    @property
    def paths(self) -> list[str]:
        """Of all files, in order."""
        return [file.path for file in self.all_files]


class Archived(NamedTuple):
    """Records of one leader epoch that are there already."""

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
    def within(cls, state: ArchiveState, wanted: Iterable[tuple[LogId, Span]]) -> list[Self]:
        """Of those that are about to be read."""
        return [
            cls(log, epoch, span)
            for log, offsets in wanted
            for epoch, spans in sorted(state.epochs.get(log, {}).items())
            for span in spans
            if span.first < offsets.end and offsets.first < span.end
        ]
