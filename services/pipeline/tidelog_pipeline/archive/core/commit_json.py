"""Commits, and the state that is their sum, as JSON. Pure.

The current version 3 has a SHA-256 of the rest of the document. Without it, a flipped bit in a
number would be read as another offset. Versions 1 (of releases without checksums of files,
repair and expiry) and 2 can be read, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.errors import ErrorCode, TidelogError
from tidelog_pipeline.archive.core.commits import (
    AddedFile,
    ArchiveState,
    Commit,
    DamagedOffsets,
    ReadRange,
    RemovedRows,
)
from tidelog_pipeline.archive.core.spans import LogId, Span

VERSION = 3
_KNOWN = (1, 2, VERSION)
# The first version with this field.
_SHA256, _WITH_SHA256 = "sha256", 3


_REMEDY = (
    "restore it, or run `archive repair`, which continues without it and reads its content from "
    "the files of the table"
)


class DamagedCommitError(TidelogError):
    """A commit or a state is lost or damaged. `what`: the fault without the remedy."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, f"{what}: {_REMEDY}")
        self.what = what


class UncommittedFilesError(DamagedCommitError):
    """The table has files that no commit names: the newest commits are lost."""

    def __init__(self, paths: Sequence[str]) -> None:
        others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        super().__init__(
            f"no commit names {paths[0]}{others} of the table's files: the newest commit is "
            "missing, whose rows a run or a back-fill would archive again"
        )


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
            "removed": list(commit.removed),
            "keeps_removed": commit.keeps_removed,
            "expired": [_gone_value(one) for one in commit.expired],
            "expired_before_ms": commit.expired_before_ms,
            "lost": [_gone_value(one) for one in commit.lost],
            "damaged": [[*one.log, _spans_value(one.offsets), one.rows] for one in commit.damaged],
            "reopened": [list(log) for log in commit.reopened],
        }
    )


def commit_from_json(text: bytes, name: str) -> Commit:
    """Raises `DamagedCommitError`, and another `TidelogError` for a later version."""
    value = _value(text, name)
    try:
        commit = Commit(
            value["staging"],
            value["committed_at_ms"],
            tuple(AddedFile(*file) for file in value["added"]),
            tuple(_read_range(*fields) for fields in value["read"]),
            value["query"],
            value["batch"],
            value["replaces"],
        )
        if value["version"] == 1:
            return commit
        return commit._replace(
            removed=tuple(value["removed"]),
            keeps_removed=value["keeps_removed"],
            expired=tuple(_gone_rows(*fields) for fields in value["expired"]),
            expired_before_ms=value["expired_before_ms"],
            lost=tuple(_gone_rows(*fields) for fields in value["lost"]),
            damaged=tuple(_damaged_offsets(*fields) for fields in value.get("damaged", ())),
            reopened=tuple(LogId(*fields) for fields in value.get("reopened", ())),
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
                    _spans_value(covered),
                    {e: _spans_value(spans) for e, spans in state.epochs[log].items()},
                ]
                for log, covered in state.covered.items()
            ],
            "batches": state.batches,
            "expired": [_gone_value(one) for one in state.expired.values()],
            "expired_before_ms": state.expired_before_ms,
            "lost": [_gone_value(one) for one in state.lost.values()],
            "damaged": [[*log, _spans_value(spans)] for log, spans in state.damaged.items()],
        }
    )


def state_from_json(text: bytes, name: str) -> ArchiveState:
    """Raises as `commit_from_json` does."""
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
        if value["version"] > 1:
            state.expired = _by_log(value["expired"])
            state.expired_before_ms = value["expired_before_ms"]
            state.lost = _by_log(value["lost"])
            damaged = (_damaged_offsets(*fields) for fields in value.get("damaged", ()))
            state.damaged = {one.log: one.offsets for one in damaged}
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(name, repr(error)) from error
    return state


def _epochs_value(epochs: Mapping[int, Span]) -> dict[str, list[int]]:
    return {str(epoch): list(span) for epoch, span in epochs.items()}


def _gone_value(gone: RemovedRows) -> list[Any]:
    return [*gone.log, gone.rows, _spans_value(gone.offsets)]


def _spans_value(spans: Iterable[Span]) -> list[list[int]]:
    return [list(span) for span in spans]


def _damaged_offsets(
    topic: str, topic_id: str, partition: int, offsets: list[list[int]], rows: int = 0
) -> DamagedOffsets:
    spans = tuple(Span(*span) for span in offsets)
    return DamagedOffsets(LogId(topic, topic_id, partition), spans, rows)


def _by_log(values: list[list[Any]]) -> dict[LogId, RemovedRows]:
    return {one.log: one for one in (_gone_rows(*fields) for fields in values)}


def _gone_rows(
    topic: str, topic_id: str, partition: int, rows: int, offsets: list[list[int]]
) -> RemovedRows:
    spans = tuple(Span(*span) for span in offsets)
    return RemovedRows(LogId(topic, topic_id, partition), rows, spans)


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


def _text(value: dict[str, Any]) -> bytes:
    return _dumped({**value, _SHA256: _sha256(value)})


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _sha256(value: Any) -> str:
    return hashlib.sha256(_dumped(value)).hexdigest()


def _value(text: bytes, name: str) -> Any:
    try:
        value = json.loads(text)
        version = value["version"]
        checksum = value.pop(_SHA256, None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(name, repr(error)) from error
    if checksum is not None and checksum != _sha256(value):
        raise _unreadable(name, "its SHA-256 differs from the stored one")
    if isinstance(version, int) and version > VERSION:
        raise _of_later_version(name, version)
    if version not in _KNOWN or (checksum is None and version >= _WITH_SHA256):
        raise _unreadable(name, f"it has version {version!r} and no SHA-256")
    return value


def _of_later_version(name: str, version: int) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_REQUEST,
        f"{name} has version {version}, and this is {VERSION}: continue with the release that "
        "wrote it",
    )


def _unreadable(name: str, why: str) -> DamagedCommitError:
    return DamagedCommitError(f"{name} is not a readable part of an archive ({why})")
