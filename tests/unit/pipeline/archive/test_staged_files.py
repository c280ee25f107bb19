import pytest

from tidelog.errors import TidelogError
from tidelog_pipeline.archive.core.commits import ReadRange
from tidelog_pipeline.archive.core.planned_offsets import Planned
from tidelog_pipeline.archive.core.spans import LogId, Span
from tidelog_pipeline.archive.core.staged_files import (
    StagedRows,
    check_complete,
    read_ranges,
    rows_of_files,
    with_gaps,
)

LOG, OTHER = LogId("sea", "id", 0), LogId("sea", "id", 1)
# The second file begins after an election, and offset 15 has no record.
ROWS = [
    StagedRows("b", LOG, 4, 4, 0, 16, 19),
    StagedRows("a", LOG, 2, 5, 1, 10, 14),
]


def test_files_have_the_rows_of_all_their_logs() -> None:
    rows = [*ROWS, StagedRows("a", OTHER, 1, 3, 0, 0, 2)]
    assert rows_of_files(rows) == {"a": 8, "b": 4}


def test_rows_invisible_to_the_driver_are_an_error() -> None:
    check_complete(9, ROWS, "/data")
    check_complete(0, [], "/data")
    for staged in (ROWS[:1], []):
        with pytest.raises(
            TidelogError, match=r"9 rows were written to /data, and the driver sees [40] of them"
        ):
            check_complete(9, staged, "/data")


@pytest.mark.rule("archive-plans-taken-from-checkpoint")
def test_all_planned_offsets_count_as_read() -> None:
    planned = {LOG: Planned(8, 21), OTHER: Planned(5, 6)}
    assert read_ranges(ROWS, planned) == [
        ReadRange(LOG, Span(8, 21), 9, 1, {2: Span(8, 16), 4: Span(16, 21)}),
        ReadRange(OTHER, Span(5, 6), 0, 0, {}),
    ]


def test_an_unknown_start_is_taken_from_the_rows() -> None:
    assert [r.offsets for r in read_ranges(ROWS, {LOG: Planned(None, 21)})] == [Span(10, 21)]
    assert read_ranges([], {LOG: Planned(None, 21)}) == []


def test_after_a_truncation_rows_begin_before_the_end_of_the_last_batch() -> None:
    assert [r.offsets for r in read_ranges(ROWS, {LOG: Planned(12, 21)})] == [Span(10, 21)]


def test_an_epoch_is_not_recorded_where_its_rows_were_filtered_out() -> None:
    found = read_ranges(ROWS[:1], {LOG: Planned(8, 21)}, [LOG])
    assert found == [ReadRange(LOG, Span(8, 21), 4, 0, {4: Span(16, 21)})]


@pytest.mark.rule("archive-plans-taken-from-checkpoint")
@pytest.mark.parametrize("planned", [{OTHER: Planned(0, 99)}, {LOG: Planned(0, 19)}])
def test_unplanned_rows_are_an_error(planned: dict[LogId, Planned]) -> None:
    with pytest.raises(TidelogError, match="offset 19 of sea/0"):
        read_ranges(ROWS, planned)


@pytest.mark.parametrize(
    ("planned", "archived", "firsts", "ranges"),
    [
        # Ten offsets and nine rows.
        (Planned(10, 20), {}, {}, {LOG: Span(10, 20)}),
        (Planned(11, 20), {}, {}, {LOG: Span(10, 20)}),
        # As many rows as offsets, except for one offset that may be of another epoch.
        (Planned(11, 20), {LOG: [Span(8, 12)]}, {}, {LOG: Span(10, 20)}),
        # The start is that of the rows, or the given one.
        (Planned(None, 20), {}, {}, {LOG: Span(10, 20)}),
        (Planned(None, 20), {}, {LOG: 5}, {LOG: Span(5, 20)}),
    ],
)
def test_ranges_with_fewer_rows_than_offsets_have_gaps(
    planned: Planned,
    archived: dict[LogId, list[Span]],
    firsts: dict[LogId, int],
    ranges: dict[LogId, Span],
) -> None:
    assert with_gaps(ROWS, {LOG: planned}, archived, firsts) == ranges


def test_ranges_with_a_row_at_each_offset_have_none() -> None:
    full = [StagedRows("a", LOG, 2, 5, 1, 10, 14), StagedRows("b", LOG, 4, 5, 0, 15, 19)]
    before = {LOG: [Span(0, 10)]}
    assert with_gaps(full, {LOG: Planned(10, 20), OTHER: Planned(None, 3)}, before, {}) == {}
    # The planned range yielded no rows.
    assert with_gaps(full, {OTHER: Planned(None, 3)}, {}, {OTHER: 1}) == {OTHER: Span(1, 3)}
