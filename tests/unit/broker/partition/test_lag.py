from tidelog.batch import stamp
from tidelog.model import NO_OFFSET
from tidelog_broker.partition.lag import UNKNOWN_LAG, Lag, lag_of
from unit.broker.fake_log import FakeLog, sent


def log_appended_at(*times_ms: int, start: int = 0) -> FakeLog:
    log = FakeLog(start=start)
    for time_ms in times_ms:
        end = log.log_end_offset
        log.append([stamp(sent(), base_offset=end, leader_epoch=1, append_time_ms=time_ms)])
    return log


def test_who_has_all_lags_by_nothing() -> None:
    assert lag_of(log_appended_at(10, 20), 2, 1000) == Lag(0, 0, 0)


def test_the_lag_in_time_is_the_age_of_the_oldest_record_that_is_missing() -> None:
    assert lag_of(log_appended_at(10, 20, 30), 1, 100) == Lag(2, 200, 80)


def test_who_has_told_nothing_in_this_epoch_has_no_known_lag() -> None:
    assert lag_of(log_appended_at(10), NO_OFFSET, 100) == UNKNOWN_LAG


def test_below_the_log_the_oldest_record_that_is_left_counts() -> None:
    assert lag_of(log_appended_at(10, 20, start=5), 3, 100) == Lag(4, 200, 90)


def test_a_clock_that_fell_back_makes_no_negative_lag() -> None:
    assert lag_of(log_appended_at(500), 0, 100).ms == 0
