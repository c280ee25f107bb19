import pytest

from tidelog_pipeline.archive.core.commits import ArchiveState, RemovedRows
from tidelog_pipeline.archive.core.reconciliation import (
    Counted,
    FileCounts,
    LogDamage,
    compared_offsets,
    holes,
    report,
)
from tidelog_pipeline.archive.core.spans import LogId, Span

LOG = LogId("sea", "id", 0)
STATE = ArchiveState(covered={LOG: (Span(0, 40), Span(50, 80))}, rows={LOG: 69}, unread={LOG: 0})
BOTH = {2: Counted(49, 3000)}


def test_only_ranges_that_both_have_are_compared() -> None:
    assert compared_offsets(STATE, LOG, Span(20, 90)) == (Span(20, 40), Span(50, 80))
    assert compared_offsets(STATE, LOG, None) == ()


def test_an_unread_range_is_a_hole_unless_at_the_end() -> None:
    assert holes(STATE, LOG, Span(20, 90)) == (Span(40, 50),)
    assert holes(STATE, LOG, None) == ()


def test_matching_counts_are_reported_with_the_outstanding_ranges() -> None:
    found = report(STATE, LOG, Span(20, 90), FileCounts(69, 69), BOTH, BOTH, [])
    assert not found.problems
    assert str(found) == (
        "sea/0: 49 records in the log and in the archive, 20 deleted by the log, "
        "offsets 80 to 89 wait for the next run"
    )


@pytest.mark.rule("archive-lost-files-are-restored")
def test_lost_rows_that_the_log_has_are_left_to_a_repair() -> None:
    """The repair that gave them up was started with the address of another cluster."""
    lost = {LOG: RemovedRows(LOG, 10, (Span(10, 30),))}
    state = ArchiveState(
        covered=STATE.covered,
        epochs={LOG: {2: (Span(0, 80),)}},
        rows={LOG: 59},
        unread={LOG: 0},
        lost=lost,
    )
    fewer = {2: Counted(39, 2800)}
    found = report(state, LOG, Span(20, 90), FileCounts(59, 59), BOTH, fewer, [])
    assert "the log has lost offsets 20 to 29 again: run `archive repair`" in str(found)
    # An unclean election gave these offsets to other records, which the archive has.
    assert not report(state, LOG, Span(20, 90), FileCounts(59, 59), BOTH, BOTH, []).problems
    assert not report(state, LOG, None, FileCounts(59, 59), {}, {}, []).problems


@pytest.mark.rule("archive-lost-files-are-restored")
def test_lost_rows_of_lost_commits_are_left_to_a_back_fill() -> None:
    """A repair restores rows of leader epochs that commits have, and would find none of these."""
    lost = {LOG: RemovedRows(LOG, 10, (Span(10, 20), Span(25, 30)))}
    state = ArchiveState(
        covered=STATE.covered,
        epochs={LOG: {2: (Span(0, 12), Span(20, 80))}},
        rows={LOG: 59},
        unread={LOG: 0},
        lost=lost,
    )
    fewer = {2: Counted(39, 2800)}
    found = report(state, LOG, Span(0, 90), FileCounts(59, 59), BOTH, fewer, [])
    by_repair, by_back_fill = [text for text in found.problems if "has lost offsets" in text]
    assert "offsets 10 to 11, 25 to 29 again: run `archive repair`" in by_repair
    assert "offsets 12 to 19 again" in by_back_fill
    assert """archive backfill --since '{"sea": {"0": 12}}'""" in by_back_fill
    assert "archive repair" not in by_back_fill


def test_a_hole_with_uncommitted_files_is_left_to_a_repair() -> None:
    hole = Span(40, 50)
    for has_unnamed, advice in ((False, "archive backfill --since"), (True, "archive repair")):
        found = report(
            STATE,
            LOG,
            Span(20, 90),
            FileCounts(69, 69),
            BOTH,
            BOTH,
            [hole],
            has_unnamed_files=has_unnamed,
        )
        [problem] = found.problems
        assert "offsets 40 to 49" in problem
        assert advice in problem


@pytest.mark.rule("archive-counted-by-leader-epoch")
@pytest.mark.parametrize(
    ("files", "in_log", "in_archive", "message"),
    [
        (FileCounts(68, 68), BOTH, BOTH, "its files have 68 rows, and its commits 69"),
        (FileCounts(69, 67), BOTH, BOTH, "2 rows are duplicates"),
        (FileCounts(69, 69), BOTH, {}, "49 records of leader epoch 2 are missing in the archive"),
        (
            FileCounts(69, 69),
            {},
            BOTH,
            "an unclean election truncated them, or the partition was removed",
        ),
        (
            FileCounts(69, 69),
            BOTH,
            {2: Counted(48, 2950)},
            "the log has 49 records of leader epoch 2, and the archive 48",
        ),
        (FileCounts(69, 69), BOTH, {2: Counted(49, 3001)}, "are at other offsets"),
    ],
)
def test_each_difference_is_reported(
    files: FileCounts, in_log: dict[int, Counted], in_archive: dict[int, Counted], message: str
) -> None:
    found = report(STATE, LOG, Span(0, 80), files, in_log, in_archive, [])
    assert len(found.problems) == 1
    assert message in str(found)


def test_a_hole_with_records_is_reported_with_the_command_that_fills_it() -> None:
    found = report(STATE, LOG, Span(0, 80), FileCounts(69, 69), BOTH, BOTH, [Span(40, 50)])
    assert "offsets 40 to 49 have records and were never archived" in str(found)
    assert """--since '{"sea": {"0": 40}}'""" in str(found)


def test_damage_in_the_log_is_reported_and_is_a_problem_if_the_archive_does_not_know_it() -> None:
    archived = LogDamage((Span(20, 25),), 5)
    found = report(STATE, LOG, Span(0, 80), FileCounts(69, 69), BOTH, BOTH, [], damage=archived)
    assert not found.problems
    assert "15 deleted by the log" in str(found)
    assert "5 damaged in the log (offsets 20 to 24)" in str(found)
    known = ArchiveState(covered=STATE.covered, rows=STATE.rows, damaged={LOG: (Span(40, 45),)})
    hole = LogDamage(never_archived=(Span(40, 50),))
    found = report(known, LOG, Span(0, 80), FileCounts(69, 69), BOTH, BOTH, [], damage=hole)
    assert "offsets 45 to 49 were never archived, and are damaged in the log" in str(found)
    hole = LogDamage(never_archived=(Span(40, 45),))
    found = report(known, LOG, Span(0, 80), FileCounts(69, 69), BOTH, BOTH, [], damage=hole)
    assert not found.problems
    assert "offsets 40 to 44 were damaged before they were archived" in str(found)
