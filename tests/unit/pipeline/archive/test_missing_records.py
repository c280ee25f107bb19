import pytest

from tidelog_pipeline.archive.core.commits import (
    Archived,
    ArchiveState,
    DamagedOffsets,
    RemovedRows,
)
from tidelog_pipeline.archive.core.missing_records import (
    MAX_RANGES,
    MissingRows,
    RestoredRows,
    given_up_rows,
    lost_rows,
    missing_rows,
    readable,
    reads,
    without_damaged,
)
from tidelog_pipeline.archive.core.spans import LogId, Span

LOG, OTHER = LogId("sea", "id", 0), LogId("sea", "id", 1)
NOTHING = RestoredRows(0, ())


def state() -> ArchiveState:
    return ArchiveState(epochs={LOG: {2: (Span(0, 50),), 4: (Span(50, 90),)}})


def missing(rows: int) -> MissingRows:
    return MissingRows(LOG, rows, (Archived(LOG, 2, Span(0, 10)), Archived(LOG, 4, Span(60, 90))))


def test_missing_rows_are_ranges_that_the_archive_lacks() -> None:
    present = {2: [Span(10, 50)], 4: [Span(50, 60)]}
    assert missing_rows(state(), LOG, 30, present) == missing(30)
    assert missing_rows(state(), OTHER, 1, {}) == MissingRows(OTHER, 1, ())


def test_known_losses_are_not_searched_again() -> None:
    found = state()
    found.lost = {LOG: RemovedRows(LOG, 10, (Span(0, 10),))}
    present = {2: [Span(10, 50)], 4: [Span(50, 60)]}
    assert missing_rows(found, LOG, 30, present).offsets == (Span(60, 90),)


def test_lost_rows_are_searched_by_their_leader_epochs_except_for_present_ones() -> None:
    found = state()
    found.lost = {LOG: RemovedRows(LOG, 12, (Span(40, 60),))}
    # After an unclean election, the archive has another record at some of the lost offsets.
    expected = (Archived(LOG, 2, Span(40, 50)), Archived(LOG, 4, Span(55, 60)))
    present = {2: [Span(0, 40)], 4: [Span(50, 55)]}
    assert given_up_rows(found, LOG, present) == MissingRows(LOG, 12, expected)


def test_only_ranges_still_in_the_log_are_read() -> None:
    assert readable(missing(30), Span(5, 70)) == (Span(5, 10), Span(60, 70))
    assert readable(missing(30), None) == ()


def test_logs_are_read_concurrently_one_range_at_a_time() -> None:
    expected = {LOG: [Span(0, 10), Span(60, 70)], OTHER: [Span(3, 5)]}
    assert list(reads(expected, 1_000)) == [
        {LOG: Span(0, 10), OTHER: Span(3, 5)},
        {LOG: Span(60, 70)},
    ]
    assert [part[LOG].size for part in reads({LOG: [Span(0, 10)]}, 4)] == [4, 4, 2]
    assert list(reads({LOG: []}, 4)) == []


def test_scattered_missing_rows_are_read_in_few_ranges() -> None:
    spans = [Span(100 * n, 100 * n + 1) for n in range(1_000)]
    parts = list(reads({LOG: spans}, 1_000_000))
    assert len(parts) == MAX_RANGES
    read = [part[LOG] for part in parts]
    assert all(any(r.first <= s.first < r.end for r in read) for s in spans)


@pytest.mark.rule("archive-lost-files-are-restored")
@pytest.mark.parametrize(
    ("rows", "restored", "now", "offsets"),
    [
        # The log begins at 80: its records were written again.
        (40, RestoredRows(10, (Span(80, 90),)), Span(80, 90), (Span(0, 10), Span(60, 80))),
        # The topic was deleted.
        (40, NOTHING, None, (Span(0, 10), Span(60, 90))),
        # More rows are lost than offsets are missing: an unclean election truncated the others.
        (35, NOTHING, Span(80, 90), (Span(0, 10), Span(60, 90))),
    ],
)
def test_offsets_missing_from_the_log_are_lost(
    rows: int, restored: RestoredRows, now: Span | None, offsets: tuple[Span, ...]
) -> None:
    left = rows - restored.rows
    assert lost_rows(missing(rows), restored, now) == RemovedRows(LOG, left, offsets)


def test_expired_rows_are_not_lost() -> None:
    found = lost_rows(missing(30), NOTHING, None, expired=[Span(0, 10)])
    assert found == RemovedRows(LOG, 30, (Span(60, 90),))


def test_nothing_is_lost_when_all_rows_were_written_again() -> None:
    assert lost_rows(missing(10), RestoredRows(10, (Span(60, 70),)), Span(60, 90)) is None


def test_damage_in_the_log_is_counted_separately() -> None:
    left = without_damaged(missing(30), DamagedOffsets(LOG, (Span(8, 65),), 5))
    assert left == MissingRows(
        LOG, 25, (Archived(LOG, 2, Span(0, 8)), Archived(LOG, 4, Span(65, 90)))
    )
