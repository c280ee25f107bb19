import pytest

from tidelog_pipeline.archive.core.commits import AddedFile, ArchiveState
from tidelog_pipeline.archive.core.expiry import (
    ExpiredHour,
    before_damaged,
    hours_before,
    whole_hours_ms,
)

HOUR_MS = 3_600_000
# 2026-11-22T10:00Z
TEN_MS = 1_795_341_600_000


def state(*hours: str) -> ArchiveState:
    return ArchiveState(
        files={hour: {f"{hour}/a.parquet": AddedFile(f"{hour}/a.parquet", 3, 9)} for hour in hours}
    )


@pytest.mark.rule("archive-expired-hours-stay-expired")
def test_only_hours_that_ended_before_the_limit_are_expired() -> None:
    hours = [f"topic=sea/date=2026-11-22/hour={hour}" for hour in ("09", "10", "11")]
    undated = "topic=sea/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
    found = state(*hours, undated)
    assert [hour.path for hour in hours_before(found, TEN_MS)] == hours[:1]
    assert [hour.path for hour in hours_before(found, TEN_MS + HOUR_MS - 1)] == hours[:1]
    assert [hour.path for hour in hours_before(found, TEN_MS + HOUR_MS)] == hours[:2]
    [first] = hours_before(found, TEN_MS)
    assert isinstance(first, ExpiredHour)
    assert first.rows == 3


def test_a_time_within_an_hour_is_rounded_down() -> None:
    assert whole_hours_ms(TEN_MS + 5) == TEN_MS
    assert whole_hours_ms(TEN_MS) == TEN_MS


def test_expiry_ends_before_the_first_hour_with_a_damaged_file() -> None:
    """Either everything before a time is expired, or it is unknown what is missing there."""
    hours = [
        f"topic={topic}/date=2026-11-22/hour={hour}" for topic in "ab" for hour in ("08", "09")
    ]
    found = hours_before(state(*hours), TEN_MS)
    assert before_damaged(found, (), TEN_MS) == (found, TEN_MS)
    chosen, horizon_ms = before_damaged(found, [f"{hours[3]}/a.parquet"], TEN_MS)
    assert [hour.path for hour in chosen] == [hours[0], hours[2]]
    assert horizon_ms == TEN_MS - HOUR_MS
    assert before_damaged(found, [f"{hours[0]}/a.parquet"], TEN_MS) == ([], TEN_MS - 2 * HOUR_MS)
