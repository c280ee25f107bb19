"""The files that were written for a commit, compared with what was planned. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog_pipeline.archive.core.commits import ReadRange
from tidelog_pipeline.archive.core.planned_offsets import Planned
from tidelog_pipeline.archive.core.spans import LogId, Span, by_epoch, common


class StagedRows(NamedTuple):
    """Rows of one file, log and leader epoch.

    - `unread`: number of rows that do not match the schema.
    - `first`, `last`: first and last offset.
    """

    path: str
    log: LogId
    leader_epoch: int
    rows: int
    unread: int
    first: int
    last: int


def check_complete(given: int, staged: Iterable[StagedRows], location: str) -> None:
    """Raises `TidelogError` if the driver does not find all rows that executors wrote.

    Offsets without a row count as read, so a commit would skip the missing rows.

    - `given`: number of rows that executors were given to write.
    """
    found = sum(one.rows for one in staged)
    if found != given:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{given} rows were written to {location}, and the driver sees {found} of them; "
            "nothing was archived: the output must be a directory that this machine and "
            "all executors mount under one path",
        )


def rows_of_files(staged: Iterable[StagedRows]) -> dict[str, int]:
    """Returns the number of rows by path, ordered."""
    rows: dict[str, int] = {}
    for one in staged:
        rows[one.path] = rows.get(one.path, 0) + one.rows
    return dict(sorted(rows.items()))


def rows_of_logs(staged: Iterable[StagedRows]) -> dict[LogId, int]:
    """Returns the number of rows by log, ordered."""
    rows: dict[LogId, int] = {}
    for one in staged:
        rows[one.log] = rows.get(one.log, 0) + one.rows
    return dict(sorted(rows.items()))


def read_ranges(
    staged: Iterable[StagedRows],
    planned: Mapping[LogId, Planned],
    archived_in_part: Iterable[LogId] = (),
) -> list[ReadRange]:
    """Returns the ranges that a commit has read.

    - `archived_in_part`: logs of which rows were left out because they are archived already.

    Raises `TidelogError` for rows that were not planned.
    """
    of_log: dict[LogId, list[StagedRows]] = {}
    for one in staged:
        of_log.setdefault(one.log, []).append(one)
    strange = sorted(set(of_log) - set(planned))
    if strange:
        raise _unplanned(strange[0], of_log[strange[0]], None)
    partly = set(archived_in_part)
    found = []
    for log, offsets in sorted(planned.items()):
        rows = sorted(of_log.get(log, ()), key=lambda one: one.first)
        read = _read_offsets(offsets, rows)
        if read is None:
            continue
        if rows and max(one.last for one in rows) >= read.end:
            raise _unplanned(log, rows, read)
        first_of_rows = Span(rows[0].first, read.end) if rows and log in partly else read
        epochs = by_epoch(first_of_rows, _first_offsets(rows))
        count, unread = sum(one.rows for one in rows), sum(one.unread for one in rows)
        found.append(ReadRange(log, read, count, unread, epochs))
    return found


def with_gaps(
    staged: Collection[StagedRows],
    planned: Mapping[LogId, Planned],
    archived: Mapping[LogId, Iterable[Span]],
    firsts: Mapping[LogId, int],
) -> dict[LogId, Span]:
    """Returns the ranges in which some offsets may have no row.

    These have fewer rows than offsets, or are partly `archived` already. `firsts`: as in
    `ArchiveWriter.write`.
    """
    rows = rows_of_logs(staged)
    first = dict(firsts)
    for one in staged:
        first[one.log] = min(one.first, first.get(one.log, one.first))
    found = {}
    for log, at in planned.items():
        begins = [start for start in (at.first, first.get(log)) if start is not None]
        span = Span(min(begins, default=at.end), at.end)
        in_part = common(span, archived.get(log, ()))
        if span.size and (in_part or span.size != rows.get(log, 0)):
            found[log] = span
    return found


def _read_offsets(planned: Planned, rows: list[StagedRows]) -> Span | None:
    if not rows:
        return None if planned.first is None else Span(planned.first, planned.end)
    if planned.first is None:
        return Span(rows[0].first, planned.end)
    # After an unclean election, it may begin before its previous end.
    return Span(min(planned.first, rows[0].first), planned.end)


def _first_offsets(rows: Iterable[StagedRows]) -> list[tuple[int, int]]:
    first: dict[int, int] = {}
    for one in rows:
        first[one.leader_epoch] = min(one.first, first.get(one.leader_epoch, one.first))
    return sorted(first.items(), key=lambda item: item[1])


def _unplanned(log: LogId, rows: Iterable[StagedRows], planned: Span | None) -> TidelogError:
    last = max(one.last for one in rows)
    plan = "no offset" if planned is None else f"offsets before {planned.end}"
    return TidelogError(
        ErrorCode.INVALID_REQUEST,
        f"offset {last} of {log} (topic id {log.topic_id}) was written, and the micro-batch has "
        f"{plan} of it; nothing was archived: the checkpoint may belong to another query",
    )
