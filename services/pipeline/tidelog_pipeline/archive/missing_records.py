"""Which records an archive has lost, and where they may be had again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

from tidelog_pipeline.archive.commits import Archived, ArchiveState, DamagedOffsets, GoneRows
from tidelog_pipeline.archive.spans import LogId, Span, common, fewer, slices, united, without

# A partition is read in so many ranges at most: each is a job of its own.
MAX_RANGES = 16


class MissingRows(NamedTuple):
    """`rows`: how many rows of the log no sound file has; they are among `records`, the offsets at
    which the archive has no row. (Some of these never had a record.)"""

    log: LogId
    rows: int
    records: tuple[Archived, ...]

    @property
    def offsets(self) -> tuple[Span, ...]:
        return united(one.offsets for one in self.records)


class RestoredRows(NamedTuple):
    """`offsets`: those between the first and the last row of each file that was written."""

    rows: int
    offsets: tuple[Span, ...]


def missing_rows(
    state: ArchiveState, log: LogId, rows: int, present: Mapping[int, Iterable[Span]]
) -> MissingRows:
    """`rows`: how many are missing; `present`: offsets of rows that are there, by leader epoch."""
    lost = state.lost[log].offsets if log in state.lost else ()
    records = [
        Archived(log, epoch, gap)
        for epoch, spans in sorted(state.epochs.get(log, {}).items())
        for span in spans
        for gap in without(span, [*present.get(epoch, ()), *lost])
    ]
    return MissingRows(log, rows, tuple(records))


def without_damaged(missing: MissingRows, damaged: DamagedOffsets) -> MissingRows:
    """The others."""
    records = [
        Archived(one.log, one.leader_epoch, left)
        for one in missing.records
        for left in without(one.offsets, damaged.offsets)
    ]
    return MissingRows(missing.log, missing.rows - damaged.rows, tuple(records))


def readable(missing: MissingRows, now: Span | None) -> tuple[Span, ...]:
    """Offsets at which the log may still have missing records."""
    return () if now is None else common(now, missing.offsets)


def reads(wanted: Mapping[LogId, Iterable[Span]], max_offsets: int) -> Iterator[dict[LogId, Span]]:
    """Reads that cover these spans, one after another: one range a log, all logs side by side, of
    at most `max_offsets` offsets."""
    ranges = [
        [(log, span) for span in fewer(united(spans), MAX_RANGES)] for log, spans in wanted.items()
    ]
    for beside in zip_longest(*ranges):
        yield from slices(dict(one for one in beside if one is not None), max_offsets)


def lost_rows(
    missing: MissingRows, restored: RestoredRows, now: Span | None, expired: Iterable[Span] = ()
) -> GoneRows | None:
    """What no file and no log has any more; None: nothing. `expired`: offsets of rows that were
    removed on purpose."""
    rows = missing.rows - restored.rows
    if rows <= 0:
        return None
    left = [gap for span in missing.offsets for gap in without(span, restored.offsets)]
    gone = [gap for span in left for gap in ([span] if now is None else without(span, [now]))]
    expected = [gap for span in gone for gap in without(span, expired)]
    # A record that the log has at one of these offsets is of a later leader epoch, or was never
    # archived: the lost ones are outside of what it has, unless that is too little.
    for offsets in (expected, gone):
        if sum(span.size for span in offsets) >= rows:
            return GoneRows(missing.log, rows, united(offsets))
    return GoneRows(missing.log, rows, united(left))
