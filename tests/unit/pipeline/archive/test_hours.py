from datetime import UTC, datetime

import pytest

from tidelog_pipeline.archive.core.commits import AddedFile, ArchiveState
from tidelog_pipeline.archive.core.hours import (
    HOUR_MS,
    before_damaged,
    hours_before,
    hours_to_compact,
    whole_hours_ms,
)

HOUR = "topic=sea/date=2026-11-22/hour=10"
ENDS_MS = int(datetime(2026, 11, 22, 11, tzinfo=UTC).timestamp() * 1000)
TEN_MS = ENDS_MS - HOUR_MS


def state_of_sizes(*sizes: int) -> ArchiveState:
    files = {f"{HOUR}/{n}": AddedFile(f"{HOUR}/{n}", 10, size) for n, size in enumerate(sizes)}
    return ArchiveState(files={HOUR: files})


def chosen(found: ArchiveState, now_ms: int = ENDS_MS + HOUR_MS) -> list[tuple[str, int, int]]:
    hours = hours_to_compact(found, now_ms, HOUR_MS, target_bytes=100)
    return [(hour.path, hour.rows, hour.file_count(100)) for hour in hours]


@pytest.mark.rule("archive-hour-exchanged-in-one-step")
def test_small_files_of_an_hour_are_merged_into_the_fewest() -> None:
    assert chosen(state_of_sizes(10, 20, 30)) == [(HOUR, 30, 1)]
    assert chosen(state_of_sizes(10, 49, 95)) == [(HOUR, 30, 2)]


def test_an_hour_of_large_files_is_unchanged() -> None:
    assert chosen(state_of_sizes(90, 95)) == []
    assert chosen(state_of_sizes(10)) == []
    assert chosen(state_of_sizes(10, 95)) == []


def test_an_hour_whose_compaction_left_small_files_is_not_compacted_again() -> None:
    """A continuous run would rewrite it every ten minutes."""
    assert chosen(state_of_sizes(10, 20, 200)) == []
    assert chosen(state_of_sizes(10, 20, 170)) == [(HOUR, 30, 2)]


def test_an_hour_may_receive_late_records_for_a_while() -> None:
    assert chosen(state_of_sizes(10, 20), ENDS_MS + HOUR_MS - 1) == []


@pytest.mark.rule("archive-hour-exchanged-in-one-step")
def test_files_without_an_hour_are_unchanged() -> None:
    for times in ("date=+55840-01-01/hour=00", "date=__HIVE_DEFAULT_PARTITION__/hour=10"):
        path = f"topic=sea/{times}"
        files = {f"{path}/{n}": AddedFile(f"{path}/{n}", 10, 20) for n in range(2)}
        assert chosen(ArchiveState(files={path: files})) == []


def state_of_hours(*hours: str) -> ArchiveState:
    return ArchiveState(
        files={hour: {f"{hour}/a.parquet": AddedFile(f"{hour}/a.parquet", 3, 9)} for hour in hours}
    )


@pytest.mark.rule("archive-expired-hours-stay-expired")
def test_only_hours_that_ended_before_the_limit_are_expired() -> None:
    hours = [f"topic=sea/date=2026-11-22/hour={hour}" for hour in ("09", "10", "11")]
    undated = "topic=sea/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
    found = state_of_hours(*hours, undated)
    assert [hour.path for hour in hours_before(found, TEN_MS)] == hours[:1]
    assert [hour.path for hour in hours_before(found, TEN_MS + HOUR_MS - 1)] == hours[:1]
    assert [hour.path for hour in hours_before(found, TEN_MS + HOUR_MS)] == hours[:2]
    [first] = hours_before(found, TEN_MS)
    assert first.rows == 3


def test_a_time_within_an_hour_is_rounded_down() -> None:
    assert whole_hours_ms(TEN_MS + 5) == TEN_MS
    assert whole_hours_ms(TEN_MS) == TEN_MS


def test_expiry_ends_before_the_first_hour_with_a_damaged_file() -> None:
    """Either everything before a time is expired, or it is unknown what is missing there."""
    hours = [
        f"topic={topic}/date=2026-11-22/hour={hour}" for topic in "ab" for hour in ("08", "09")
    ]
    found = hours_before(state_of_hours(*hours), TEN_MS)
    assert before_damaged(found, (), TEN_MS) == (found, TEN_MS)
    chosen, horizon_ms = before_damaged(found, [f"{hours[3]}/a.parquet"], TEN_MS)
    assert [hour.path for hour in chosen] == [hours[0], hours[2]]
    assert horizon_ms == TEN_MS - HOUR_MS
    assert before_damaged(found, [f"{hours[0]}/a.parquet"], TEN_MS) == ([], TEN_MS - 2 * HOUR_MS)
