from datetime import date

import pytest

from tidelog_pipeline.lag.samples import DAY_MS, Days, day_of, incomplete_days, start_ms

FIRST, LAST = date(2026, 11, 21), date(2026, 11, 22)
DAYS = Days(FIRST, LAST)


def test_days_are_in_utc_and_inclusive_at_both_ends() -> None:
    assert DAYS.all == [FIRST, LAST]
    assert (DAYS.start_ms, DAYS.end_ms) == (1_795_219_200_000, 1_795_219_200_000 + 2 * DAY_MS)
    assert day_of(DAYS.start_ms) == FIRST
    assert day_of(DAYS.start_ms - 1) == date(2026, 11, 20)


@pytest.mark.rule("lag-levels-computed-from-samples")
def test_a_day_that_began_before_the_oldest_record_lacks_samples() -> None:
    assert incomplete_days(DAYS, [start_ms(FIRST) - 1]) == []
    assert incomplete_days(DAYS, [start_ms(FIRST) - 1, start_ms(FIRST)]) == [FIRST]
    assert incomplete_days(DAYS, [start_ms(LAST) + 5]) == [FIRST, LAST]


def test_a_log_without_deletions_has_all_its_samples() -> None:
    assert incomplete_days(DAYS, []) == []
