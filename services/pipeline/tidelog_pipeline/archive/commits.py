"""What an archive consists of: commits, one after another, and what they add up to. Pure.

A commit says which offsets it has read and which files it adds, or which files take the place of
those of one hour. Its file is what makes it: before that nobody sees what it adds, and what is
left to do afterwards can be done again (`archive_log`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from tidelog.errors import ErrorCode, TidelogError
from tidelog_pipeline.archive.spans import LogId, Span, united

VERSION = 1


class AddedFile(NamedTuple):
    """`path`: below the archive, where readers see it."""

    path: str
    rows: int
    size_bytes: int

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


class Commit(NamedTuple):
    """`staging`: the directory that holds its files until they are published. `query` and
    `batch`: of the micro-batch that it is of, or "" and -1. `replaces`: the hour whose files
    these take the place of."""

    staging: str
    committed_at_ms: int
    added: tuple[AddedFile, ...] = ()
    read: tuple[ReadRange, ...] = ()
    query: str = ""
    batch: int = -1
    replaces: str = ""


@dataclass(slots=True)
class ArchiveState:
    """All commits up to `number`. `files`: of each hour, by path. `covered`: the offsets that were
    read; `epochs`: by log and leader epoch, those whose records are there. `unread`: records that
    their schema could not read."""

    number: int = 0
    files: dict[str, dict[str, AddedFile]] = field(default_factory=dict)
    covered: dict[LogId, tuple[Span, ...]] = field(default_factory=dict)
    epochs: dict[LogId, dict[int, tuple[Span, ...]]] = field(default_factory=dict)
    rows: dict[LogId, int] = field(default_factory=dict)
    unread: dict[LogId, int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)

    def apply(self, commit: Commit) -> None:
        self.number += 1
        if commit.replaces:
            self.files[commit.replaces] = {}
        for file in commit.added:
            self.files.setdefault(file.hour, {})[file.path] = file
        for read in commit.read:
            self._apply_read(read)
        if commit.query:
            self.batches[commit.query] = commit.batch

    def _apply_read(self, read: ReadRange) -> None:
        log = read.log
        self.covered[log] = united([*self.covered.get(log, ()), read.offsets])
        self.rows[log] = self.rows.get(log, 0) + read.rows
        self.unread[log] = self.unread.get(log, 0) + read.unread
        epochs = self.epochs.setdefault(log, {})
        for epoch, span in read.epochs.items():
            epochs[epoch] = united([*epochs.get(epoch, ()), span])

    def has_batch(self, query: str, batch: int) -> bool:
        return self.batches.get(query, -1) >= batch

    @property
    def paths(self) -> list[str]:
        """Of all files, in order."""
        return sorted(path for files in self.files.values() for path in files)


def commit_to_json(commit: Commit) -> bytes:
    return _text(
        {
            "version": VERSION,
            "staging": commit.staging,
            "committed_at_ms": commit.committed_at_ms,
            "query": commit.query,
            "batch": commit.batch,
            "replaces": commit.replaces,
            "added": [list(file) for file in commit.added],
            "read": [
                [*read.log, *read.offsets, read.rows, read.unread, _epochs_value(read.epochs)]
                for read in commit.read
            ],
        }
    )


def commit_from_json(text: bytes, name: str) -> Commit:
    """Raises `TidelogError` for what `commit_to_json` of this version did not make."""
    value = _value(text, name)
    try:
        return Commit(
            value["staging"],
            value["committed_at_ms"],
            tuple(AddedFile(*file) for file in value["added"]),
            tuple(_read_range(*fields) for fields in value["read"]),
            value["query"],
            value["batch"],
            value["replaces"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(name, repr(error)) from error


def state_to_json(state: ArchiveState) -> bytes:
    return _text(
        {
            "version": VERSION,
            "number": state.number,
            "files": [list(file) for files in state.files.values() for file in files.values()],
            "logs": [
                [
                    *log,
                    state.rows[log],
                    state.unread[log],
                    [list(span) for span in covered],
                    {e: [list(s) for s in spans] for e, spans in state.epochs[log].items()},
                ]
                for log, covered in state.covered.items()
            ],
            "batches": state.batches,
        }
    )


def state_from_json(text: bytes, name: str) -> ArchiveState:
    """Raises `TidelogError`."""
    value = _value(text, name)
    try:
        state = ArchiveState(value["number"], batches=value["batches"])
        for file in (AddedFile(*fields) for fields in value["files"]):
            state.files.setdefault(file.hour, {})[file.path] = file
        for topic, topic_id, partition, rows, unread, covered, epochs in value["logs"]:
            log = LogId(topic, topic_id, partition)
            state.rows[log], state.unread[log] = rows, unread
            state.covered[log] = tuple(Span(*span) for span in covered)
            state.epochs[log] = {
                int(epoch): tuple(Span(*span) for span in spans) for epoch, spans in epochs.items()
            }
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(name, repr(error)) from error
    return state


class Archived(NamedTuple):
    """Records of one leader epoch that are there already."""

    log: LogId
    leader_epoch: int
    offsets: Span

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


def _epochs_value(epochs: Mapping[int, Span]) -> dict[str, list[int]]:
    return {str(epoch): list(span) for epoch, span in epochs.items()}


def _read_range(
    topic: str,
    topic_id: str,
    partition: int,
    first: int,
    end: int,
    rows: int,
    unread: int,
    epochs: Mapping[str, list[int]],
) -> ReadRange:
    return ReadRange(
        LogId(topic, topic_id, partition),
        Span(first, end),
        rows,
        unread,
        {int(epoch): Span(*span) for epoch, span in epochs.items()},
    )


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _value(text: bytes, name: str) -> Any:
    try:
        value = json.loads(text)
        version = value["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(name, repr(error)) from error
    if version != VERSION:
        raise _unreadable(name, f"it has version {version!r}, this is {VERSION}")
    return value


def _unreadable(name: str, why: str) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_REQUEST,
        f"{name} is no part of an archive that can be read here ({why}); restore it, or go on with "
        "the version that wrote it",
    )
