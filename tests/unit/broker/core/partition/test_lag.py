from tidelog.batch import stamp
from tidelog_broker.core.partition.lag import UNKNOWN_LAG, Lag, lag_of, least_lag_of, unreported_end
from unit.broker.fake_log import FakeLog, sent


def log_appended_at(*times_ms: int, start: int = 0) -> FakeLog:
    log = FakeLog(start=start)
    for time_ms in times_ms:
        end = log.log_end_offset
        log.append([stamp(sent(), base_offset=end, leader_epoch=1, append_time_ms=time_ms)])
    return log


def test_a_follower_with_everything_does_not_lag() -> None:
    assert lag_of(log_appended_at(10, 20), 2, 1000) == Lag(0, 0, 0)


def test_the_lag_in_time_is_the_age_of_the_oldest_missing_record() -> None:
    assert lag_of(log_appended_at(10, 20, 30), 1, 100) == Lag(2, 200, 80)


def test_a_follower_without_a_report_lacks_at_least_the_records_of_this_epoch() -> None:
    assert least_lag_of(log_appended_at(10, 20, 30), 1, 100) == Lag(2, 200, 80)


def test_without_writes_in_this_epoch_its_lag_is_not_known() -> None:
    assert least_lag_of(log_appended_at(10), 1, 100) == UNKNOWN_LAG


def test_an_isr_member_holds_everything_committed_whatever_it_reported() -> None:
    assert unreported_end(5, 8, in_isr=True) == 8
    assert unreported_end(5, 3, in_isr=True) == 5


def test_a_follower_outside_the_isr_is_counted_from_the_start_of_the_epoch() -> None:
    assert unreported_end(5, 8, in_isr=False) == 5


def test_below_the_log_start_the_oldest_remaining_record_counts() -> None:
    assert lag_of(log_appended_at(10, 20, start=5), 3, 100) == Lag(4, 200, 90)


def test_a_clock_that_fell_back_makes_no_negative_lag() -> None:
    assert lag_of(log_appended_at(500), 0, 100).ms == 0
