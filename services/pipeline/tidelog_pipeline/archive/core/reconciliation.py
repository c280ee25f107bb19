"""Compares an archive with the log, partition by partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog_pipeline.archive.core.commits import ArchiveState, RemovedRows
from tidelog_pipeline.archive.core.spans import LogId, Span, common, remaining, united, without


class Counted(NamedTuple):
    """Number of records, and the sum of their offsets, which detects different records."""

    rows: int
    offset_sum: int


class Difference(NamedTuple):
    """A row that differs between archive and log."""

    leader_epoch: int
    offset: int


class FileCounts(NamedTuple):
    """Rows of one log in the archive's files, and the number of distinct records among them."""

    rows: int
    distinct: int


class LogDamage(NamedTuple):
    """Offsets of one log whose records its last disk has damaged.

    - `archived`: those that the archive had read before, with `rows` rows.
    - `never_archived`: the others.
    """

    archived: tuple[Span, ...] = ()
    rows: int = 0
    never_archived: tuple[Span, ...] = ()


NO_DAMAGE = LogDamage()


@dataclass(frozen=True, slots=True)
class LogReport:
    """The comparison of one log.

    - `now`: offsets of the log; None: it is deleted.
    - `compared_rows`: archived rows at offsets that the log still has.
    - `deleted_rows`: archived rows that the log has deleted.
    - `waiting`: offsets for the next run.
    - `problems`: one sentence each.
    """

    log: LogId
    now: Span | None
    rows: int
    unread: int
    compared_rows: int
    deleted_rows: int
    waiting: Span
    problems: tuple[str, ...]
    expired_rows: int = 0
    lost: RemovedRows | None = None
    damage: LogDamage = NO_DAMAGE
    damaged_before: tuple[Span, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.log}: {self.compared_rows} records in the log and in the archive"]
        if self.problems:
            parts = [f"{self.log}: DIFFERS: {'; '.join(self.problems)}"]
        if self.deleted_rows:
            parts.append(f"{self.deleted_rows} deleted by the log")
        if self.expired_rows:
            parts.append(f"{self.expired_rows} were expired")
        if self.lost:
            parts.append(f"{self.lost.rows} are lost (offsets {spans_text(self.lost.offsets)})")
        if self.damage.archived:
            offsets = spans_text(self.damage.archived)
            parts.append(f"{self.damage.rows} damaged in the log (offsets {offsets})")
        if self.damaged_before:
            parts.append(damaged_text(self.damaged_before))
        if self.waiting.size:
            parts.append(f"offsets {_bounds(self.waiting)} wait for the next run")
        if self.unread:
            parts.append(f"{self.unread} do not match the schema")
        if self.now is None:
            parts.append(f"the topic (id {self.log.topic_id}) is deleted")
        return ", ".join(parts)


def compared_offsets(state: ArchiveState, log: LogId, now: Span | None) -> tuple[Span, ...]:
    """Returns the offsets that the archive has read and the log still has."""
    return () if now is None else common(now, state.covered.get(log, ()))


def holes(state: ArchiveState, log: LogId, now: Span | None) -> tuple[Span, ...]:
    """Returns offsets of the log that no run has read, except for those that the next run reads."""
    covered = state.covered.get(log, ())
    if now is None:
        return ()
    return without(Span(now.first, min(state.read_to(log), now.end)), covered)


def report(
    state: ArchiveState,
    log: LogId,
    now: Span | None,
    files: FileCounts,
    in_log: Mapping[int, Counted],
    in_archive: Mapping[int, Counted],
    full_holes: Iterable[Span],
    differing: Sequence[Difference] = (),
    damage: LogDamage = NO_DAMAGE,
    *,
    has_unnamed_files: bool = False,
) -> LogReport:
    """Returns the report of one log.

    - `in_log`, `in_archive`: counts of the compared offsets, by leader epoch.
    - `full_holes`: the holes in which the log has records.
    - `differing`: rows that differ from their records.
    - `damage`: its offsets are not compared.
    - `has_unnamed_files`: the topic has files that no commit names, which may hold rows that
      seem never to have been archived.
    """
    rows, damaged_before = state.rows.get(log, 0), state.damaged.get(log, ())
    problems = [_hole_problem(log, hole, has_unnamed_files) for hole in full_holes]
    unknown = remaining(damage.never_archived, damaged_before)
    if unknown:
        problems.append(
            f"offsets {spans_text(unknown)} were never archived, and are damaged in the log; "
            "run `archive backfill --on-data-loss continue` with --since and --until around them, "
            "which records that"
        )
    if files.rows != rows:
        problems.append(f"its files have {files.rows} rows, and its commits {rows}")
    if files.distinct != files.rows:
        problems.append(f"{files.rows - files.distinct} rows are duplicates")
    for epoch in sorted({*in_log, *in_archive}):
        problems += _epoch_problem(epoch, in_log.get(epoch), in_archive.get(epoch))
    lost = state.lost.get(log)
    again = common(now, lost.offsets) if now is not None and lost is not None else ()
    if again and in_log != in_archive:
        known = united(span for spans in state.epochs.get(log, {}).values() for span in spans)
        problems += _lost_again_problems(log, again, known)
    if differing:
        offsets = united(Span(one.offset, one.offset + 1) for one in differing)
        problems.append(
            f"{len(differing)} rows differ from their records in the log: offsets "
            f"{spans_text(offsets)}"
        )
    compared = sum(counted.rows for counted in in_archive.values())
    waiting = Span(0, 0) if now is None else Span(max(state.read_to(log), now.first), now.end)
    return LogReport(
        log,
        now,
        rows,
        state.unread.get(log, 0),
        compared,
        max(files.rows - compared - damage.rows, 0),
        waiting,
        tuple(problems),
        state.expired[log].rows if log in state.expired else 0,
        lost,
        damage,
        damaged_before,
    )


def _hole_problem(log: LogId, hole: Span, has_unnamed_files: bool) -> str:
    if not has_unnamed_files:
        return f"offsets {_bounds(hole)} have records and were never archived; {_advice(log, hole)}"
    return (
        f"offsets {_bounds(hole)} have records that no commit has; files that no commit names may "
        "have them: run `archive repair` before any back-fill"
    )


def _advice(log: LogId, hole: Span) -> str:
    since = f'{{"{log.topic}": {{"{log.partition}": {hole.first}}}}}'
    return f"archive them by `archive backfill --since '{since}'`"


def _lost_again_problems(
    log: LogId, again: tuple[Span, ...], known: tuple[Span, ...]
) -> Iterable[str]:
    """Yields how to restore lost offsets. A repair restores those of `known` leader epochs only.

    The others are offsets whose commit is lost as well.
    """
    unknown = remaining(again, known)
    restorable = remaining(again, unknown)
    if restorable:
        yield (
            f"the log has lost offsets {spans_text(restorable)} again: run `archive repair`, which "
            "restores records that it finds there"
        )
    if unknown:
        yield (
            f"the log has lost offsets {spans_text(unknown)} again, and no commit has their leader "
            f"epochs: {_advice(log, unknown[0])}"
        )


def _epoch_problem(epoch: int, in_log: Counted | None, in_archive: Counted | None) -> list[str]:
    if in_log == in_archive:
        return []
    if in_log is None and in_archive is not None:
        return [
            f"{in_archive.rows} archived records of leader epoch {epoch} are no longer in the log: "
            "an unclean election truncated them, or the partition was removed and added again"
        ]
    if in_archive is None and in_log is not None:
        return [f"{in_log.rows} records of leader epoch {epoch} are missing in the archive"]
    assert in_log is not None
    assert in_archive is not None
    if in_log.rows == in_archive.rows:
        return [f"the {in_log.rows} records of leader epoch {epoch} are at other offsets"]
    return [
        f"the log has {in_log.rows} records of leader epoch {epoch}, and the archive "
        f"{in_archive.rows}"
    ]


def damaged_text(offsets: Sequence[Span]) -> str:
    return f"offsets {spans_text(offsets)} were damaged before they were archived"


def spans_text(spans: Sequence[Span]) -> str:
    """Lists all spans: lost offsets are not abridged."""
    return ", ".join(_bounds(span) for span in spans)


def _bounds(span: Span) -> str:
    return f"{span.first} to {span.end - 1}"
