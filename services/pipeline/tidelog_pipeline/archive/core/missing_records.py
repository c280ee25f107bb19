"""Finds the records that an archive has lost, and where they can still be read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

from tidelog_pipeline.archive.core.commits import (
    Archived,
    ArchiveState,
    DamagedOffsets,
    RemovedRows,
)
from tidelog_pipeline.archive.core.spans import LogId, Span, common, fewer, slices, united, without

# Maximum number of ranges in which a partition is read: each is a job of its own.
MAX_RANGES = 16


class MissingRows(NamedTuple):
    """Rows of a log that no intact file has.

    - `rows`: their number.
    - `records`: the offsets at which the archive has no row. Some of these never had a record.
    """

    log: LogId
    rows: int
    records: tuple[Archived, ...]

    @property
    def offsets(self) -> tuple[Span, ...]:
        return united(one.offsets for one in self.records)


class RestoredRows(NamedTuple):
    """Rows that were restored.

    - `offsets`: those between the first and the last row of each file that was written.
    """

    rows: int
    offsets: tuple[Span, ...]


def missing_rows(
    state: ArchiveState, log: LogId, rows: int, present: Mapping[int, Iterable[Span]]
) -> MissingRows:
    """Returns the missing rows of a log.

    - `rows`: the number of missing rows.
    - `present`: offsets of the existing rows, by leader epoch.
    """
    lost = state.lost[log].offsets if log in state.lost else ()
    records = [
        Archived(log, epoch, gap)
        for epoch, spans in sorted(state.epochs.get(log, {}).items())
        for span in spans
        for gap in without(span, [*present.get(epoch, ()), *lost])
    ]
    return MissingRows(log, rows, tuple(records))


def given_up_rows(
    state: ArchiveState, log: LogId, present: Mapping[int, Iterable[Span]]
) -> MissingRows:
    """Returns the lost rows of a log that has some; `present` as in `missing_rows`."""
    lost = state.lost[log]
    records = [
        Archived(log, epoch, part)
        for epoch, spans in sorted(state.epochs.get(log, {}).items())
        for span in spans
        for gap in without(span, present.get(epoch, ()))
        for part in common(gap, lost.offsets)
    ]
    return MissingRows(log, lost.rows, tuple(records))


def without_damaged(missing: MissingRows, damaged: DamagedOffsets) -> MissingRows:
    """Returns the missing rows that are not damaged."""
    records = [
        Archived(one.log, one.leader_epoch, left)
        for one in missing.records
        for left in without(one.offsets, damaged.offsets)
    ]
    return MissingRows(missing.log, missing.rows - damaged.rows, tuple(records))


def readable(missing: MissingRows, now: Span | None) -> tuple[Span, ...]:
    """Returns offsets at which the log may still have missing records."""
    return () if now is None else common(now, missing.offsets)


def reads(
    spans_of_logs: Mapping[LogId, Iterable[Span]], max_offsets: int
) -> Iterator[dict[LogId, Span]]:
    """Yields reads that together cover these spans.

    A read has one range for each log, and at most `max_offsets` offsets.
    """
    ranges = [
        [(log, span) for span in fewer(united(spans), MAX_RANGES)]
        for log, spans in spans_of_logs.items()
    ]
    for beside in zip_longest(*ranges):
        yield from slices(dict(one for one in beside if one is not None), max_offsets)


def lost_rows(
    missing: MissingRows, restored: RestoredRows, now: Span | None, expired: Iterable[Span] = ()
) -> RemovedRows | None:
    """Returns the rows that neither files nor logs have any more; None: there are none.

    - `expired`: offsets of rows that were removed on purpose.
    """
    rows = missing.rows - restored.rows
    if rows <= 0:
        return None
    left = [gap for span in missing.offsets for gap in without(span, restored.offsets)]
    gone = [gap for span in left for gap in ([span] if now is None else without(span, [now]))]
    expected = [gap for span in gone for gap in without(span, expired)]
    # A record of the log at one of these offsets is of a later leader epoch or was never archived.
    # The lost rows are therefore outside of what the log has, unless these offsets are too few.
    for offsets in (expected, gone):
        if sum(span.size for span in offsets) >= rows:
            return RemovedRows(missing.log, rows, united(offsets))
    return RemovedRows(missing.log, rows, united(left))
