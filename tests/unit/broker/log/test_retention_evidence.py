"""Neither a single record nor a wrong clock decides how long a segment is kept."""

from __future__ import annotations

import pytest

from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.retention import MAX_RETAINED_AHEAD_MS
from tidelog_runtime.clock import MAX_SKEW_MS
from tidelog_runtime.topic_config import TopicConfig
from unit.broker.log.builders import START_MS, batch_at, open_log
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.log.test_log_truncate import FRAME

DAY_MS = 24 * 3_600_000
MICROSECONDS = START_MS * 1000
SECONDS = START_MS // 1000


def log_of(*times: tuple[int, int], **config: int) -> Log:
    """Append one record for each timestamp and append time, two in a segment."""
    limits = {"segment_bytes": 2 * FRAME, "segment_ms": DAY_MS, "retention_ms": 1_000} | config
    log = open_log(MemoryDisk(), config=LogConfig(**limits))
    for offset, (timestamp_ms, append_ms) in enumerate(times):
        log.append([batch_at(offset, timestamp_ms=timestamp_ms, append_time_ms=append_ms)])
    return log


def kept_from(log: Log, now_ms: int | None) -> int:
    log.delete_old_segments(now_ms, log.log_end_offset)
    return log.log_start_offset


def at(ms: int) -> tuple[int, int]:
    return START_MS + ms, START_MS + ms


@pytest.mark.parametrize("wrong", [MICROSECONDS, MICROSECONDS * 1000])
def test_a_timestamp_in_smaller_units_does_not_extend_retention(wrong: int) -> None:
    log = log_of((wrong, START_MS), at(10), at(20), at(30))
    assert kept_from(log, START_MS + 1_005) == 0
    assert kept_from(log, START_MS + 1_011) == 2
    assert kept_from(log, START_MS + 1_031) == 4


def test_a_timestamp_in_seconds_deletes_nothing_early() -> None:
    log = log_of((SECONDS, START_MS), (SECONDS, START_MS + 10), at(20))
    assert kept_from(log, START_MS + 1_010) == 0
    assert kept_from(log, START_MS + 1_011) == 2


def test_an_accepted_timestamp_keeps_its_segment_for_its_time() -> None:
    ahead = (START_MS + 500, START_MS)
    log = log_of(ahead, ahead, at(20), timestamp_max_ahead_ms=500)
    assert kept_from(log, START_MS + 1_500) == 0
    assert kept_from(log, START_MS + 1_501) == 3


@pytest.mark.parametrize("timestamp_max_ahead_ms", [-1, 3_600_000, 3_650 * DAY_MS, 2**62])
def test_an_accepted_timestamp_far_ahead_does_not_extend_retention(
    timestamp_max_ahead_ms: int,
) -> None:
    ahead = (START_MS + 3_000 * DAY_MS, START_MS)
    log = log_of(ahead, at(10), at(20), at(30), timestamp_max_ahead_ms=timestamp_max_ahead_ms)
    assert kept_from(log, START_MS + 1_010) == 0
    assert kept_from(log, START_MS + 1_011) == 2
    assert kept_from(log, START_MS + 1_031) == 4


def test_an_accepted_timestamp_keeps_its_segment_up_to_a_day_longer() -> None:
    ahead = (START_MS + MAX_RETAINED_AHEAD_MS, START_MS)
    log = log_of(ahead, ahead, at(20), timestamp_max_ahead_ms=2**62)
    assert kept_from(log, START_MS + MAX_RETAINED_AHEAD_MS + 1_000) == 0
    assert kept_from(log, START_MS + MAX_RETAINED_AHEAD_MS + 1_001) == 3


@pytest.mark.parametrize("timestamp_max_ahead_ms", [-1, 0, 3_600_000])
def test_data_that_a_slow_clock_appended_is_kept_by_its_timestamps(
    timestamp_max_ahead_ms: int,
) -> None:
    slow = (START_MS, START_MS - 9_000 * DAY_MS)
    log = log_of(slow, slow, slow, timestamp_max_ahead_ms=timestamp_max_ahead_ms)
    assert kept_from(log, START_MS + 1_000) == 0
    assert kept_from(log, START_MS + 1_001) == 3


def test_data_appended_by_a_fast_clock_is_as_old_as_the_next_data() -> None:
    fast = (MICROSECONDS, START_MS + 9_000 * DAY_MS)
    log = log_of(fast, fast, fast, fast, at(30))
    assert kept_from(log, START_MS + 1_030) == 0
    assert kept_from(log, START_MS + 1_031) == 5
    alone = log_of(fast, fast, fast)
    assert kept_from(alone, START_MS + DAY_MS) == 0


def test_an_hour_of_a_fast_clock_does_not_extend_retention() -> None:
    fast = (START_MS, START_MS + 3_600_000)
    log = log_of(at(0), fast, fast, fast, at(30))
    assert kept_from(log, START_MS + 1_030) == 0
    assert kept_from(log, START_MS + 1_031) == 5


def test_append_times_within_the_skew_of_clocks_keep_their_segment() -> None:
    fast = (START_MS, START_MS + MAX_SKEW_MS)
    log = log_of(fast, fast, at(20), timestamp_max_ahead_ms=0)
    assert kept_from(log, START_MS + MAX_SKEW_MS + 1_000) == 0
    assert kept_from(log, START_MS + MAX_SKEW_MS + 1_001) == 3


def test_timestamps_of_appends_count_only_within_the_skew_of_clocks() -> None:
    """A producer may date its records ahead, a broker may not."""
    ahead_ms = {
        kind: LogConfig.of_topic(TopicConfig(timestamp_type=kind)).timestamp_max_ahead_ms
        for kind in ("create", "append")
    }
    assert ahead_ms == {"create": 3_600_000, "append": MAX_SKEW_MS}


def test_damaged_batches_of_unknown_age_are_as_old_as_the_next_data() -> None:
    damaged = (0, 0)
    log = log_of(*[damaged] * 4, at(30))
    assert kept_from(log, START_MS + 1_030) == 0
    assert kept_from(log, START_MS + 1_031) == 5
    alone = log_of(damaged, damaged, damaged)
    assert kept_from(alone, START_MS + DAY_MS) == 0


def test_a_clock_in_doubt_deletes_nothing_by_age_and_still_bounds_the_size() -> None:
    log = log_of(*[at(0)] * 6, retention_bytes=3 * FRAME)
    assert kept_from(log, None) == 2
    assert log.segment_count == 2
    assert kept_from(log, START_MS + 1_001) == 6


def test_a_segment_is_rolled_once_it_reaches_the_retention_size() -> None:
    limits = {"segment_bytes": 1 << 30, "retention_bytes": 100_000}
    log = open_log(MemoryDisk(), config=LogConfig(**limits))
    for offset in range(40):
        log.append([batch_at(offset, size=10_000)])
        log.delete_old_segments(START_MS, log.log_end_offset)
        assert log.size_bytes < 200_000 + 10_000 + FRAME
    assert log.size_bytes >= 100_000


def test_the_last_append_time_is_read_again_after_a_restart() -> None:
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=2 * FRAME, retention_ms=1_000)
    log = open_log(disk, config=config)
    for offset, append_ms in enumerate((START_MS, START_MS + 500, START_MS + 500)):
        log.append([batch_at(offset, timestamp_ms=SECONDS, append_time_ms=append_ms)])
    log.flush()
    again = open_log(disk, config=config)
    assert kept_from(again, START_MS + 1_500) == 0
    assert kept_from(again, START_MS + 1_501) == 3


def test_data_below_an_offset_is_deleted_in_complete_segments() -> None:
    log = log_of(*[at(0)] * 5)
    assert log.delete_below(1) == 0
    assert log.delete_below(3) == 1
    assert log.log_start_offset == 2
    assert log.delete_below(5) == 2
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)


@pytest.mark.parametrize("wrong_ms", [9_000 * DAY_MS, -9_000 * DAY_MS])
def test_a_segment_begun_by_a_wrong_clock_is_rolled(wrong_ms: int) -> None:
    log = log_of((START_MS, START_MS + wrong_ms))
    log.append([batch_at(1, timestamp_ms=START_MS, append_time_ms=START_MS)])
    assert len(log._segments.sealed) == 1
