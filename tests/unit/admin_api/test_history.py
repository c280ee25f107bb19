"""The ring of samples behind the charts of the console."""

from __future__ import annotations

import tracemalloc

from tidelog_admin_api.history import (
    COARSE_STEP_MS,
    FINE_MS,
    HISTORY_MS,
    MAX_BYTES,
    MAX_COARSE_SAMPLES,
    MAX_FINE_SAMPLES,
    History,
    Sample,
)
from tidelog_admin_api.history_figures import Key, lag_key, topic_key

START_MS = 1_700_000_000_000  # a multiple of COARSE_STEP_MS
RATE: Key = ("records_per_second",)
PEAK: Key = ("under_replicated",)
SIZE = topic_key("total_bytes", "id-sea")
SECOND_MS = 1_000
PARTITIONS, FOLLOWERS, TOPICS = 3_000, 2, 500


def add(history: History, at_ms: int, figures: dict[Key, float], *, follows: bool = True) -> None:
    history.add(Sample(START_MS + at_ms, follows, figures, {}))


def points(history: History, key: Key, since_ms: int = 0) -> list[tuple[int, float | None]]:
    """Times are those after START_MS."""
    read = history.read([key], since_ms)
    return [
        (at_ms - START_MS, value)
        for at_ms, value in zip(read.times_ms, read.values[0], strict=True)
    ]


def test_a_sample_is_read_as_it_was_added() -> None:
    history = History()
    add(history, 0, {RATE: 12.5}, follows=False)
    assert points(history, RATE) == [(0, 12.5)]


def test_a_figure_that_a_sample_lacks_is_not_known_there() -> None:
    history = History()
    add(history, 0, {RATE: 1}, follows=False)
    add(history, 2_000, {PEAK: 0})
    assert points(history, RATE) == [(0, 1), (2_000, None)]
    assert points(history, PEAK) == [(0, None), (2_000, 0)]


def test_only_samples_after_a_time_are_read() -> None:
    history = History()
    for at_ms in (0, 2_000, 4_000):
        add(history, at_ms, {RATE: at_ms})
    assert points(history, RATE, START_MS + 2_000) == [(4_000, 4_000)]


def test_a_gap_is_a_point_without_a_value() -> None:
    history = History()
    add(history, 0, {RATE: 1}, follows=False)
    add(history, 60_000, {RATE: 2}, follows=False)
    assert points(history, RATE) == [(0, 1), (1, None), (60_000, 2)]


def test_a_gap_is_seen_by_a_reader_that_has_read_what_is_before_it() -> None:
    history = History()
    add(history, 0, {RATE: 1}, follows=False)
    add(history, 60_000, {RATE: 2}, follows=False)
    assert points(history, RATE, START_MS) == [(1, None), (60_000, 2)]


def aged(*samples: dict[Key, float]) -> History:
    """Samples of every second, that are merged because a later one follows."""
    history = History()
    for second, figures in enumerate(samples):
        add(history, second * SECOND_MS, figures)
    add(history, FINE_MS + COARSE_STEP_MS, {})
    return history


def test_old_rates_are_merged_into_their_mean() -> None:
    assert points(aged({RATE: 1}, {RATE: 3}), RATE)[0] == (SECOND_MS, 2)


def test_a_mean_leaves_out_what_is_not_known() -> None:
    assert points(aged({RATE: 1}, {}, {RATE: 3}), RATE)[0] == (2 * SECOND_MS, 2)


def test_old_counts_are_merged_into_the_highest_so_that_a_peak_stays() -> None:
    assert points(aged({PEAK: 0}, {PEAK: 7}, {PEAK: 0}, {}), PEAK)[0] == (3 * SECOND_MS, 7)


def test_old_sizes_are_merged_into_the_last() -> None:
    assert points(aged({SIZE: 9}, {SIZE: 5}), SIZE)[0] == (SECOND_MS, 5)


def test_samples_on_both_sides_of_a_gap_are_not_merged() -> None:
    history = History()
    add(history, 0, {RATE: 1})
    add(history, 6_000, {RATE: 3}, follows=False)
    add(history, FINE_MS + COARSE_STEP_MS, {})
    assert points(history, RATE)[:3] == [(0, 1), (1, None), (6_000, 3)]


def test_samples_of_the_last_five_minutes_are_not_merged() -> None:
    history = History()
    for at_ms in range(0, FINE_MS, 2_000):
        add(history, at_ms, {RATE: 1})
    assert len(points(history, RATE)) == FINE_MS // 2_000


def test_samples_older_than_an_hour_are_dropped() -> None:
    history = History()
    for at_ms in range(0, HISTORY_MS + 10 * 60_000, 30_000):
        add(history, at_ms, {RATE: 1})
    first, last = points(history, RATE)[0][0], points(history, RATE)[-1][0]
    assert HISTORY_MS - 60_000 <= last - first <= HISTORY_MS + 60_000


def test_the_number_of_samples_is_bounded_at_any_pace() -> None:
    history = History()
    for at_ms in range(0, 2_000_000, 400):
        add(history, at_ms, {RATE: 1})
    assert len(points(history, RATE)) <= MAX_FINE_SAMPLES + MAX_COARSE_SAMPLES + 1


def test_beyond_the_bytes_the_history_becomes_shorter() -> None:
    history = History(max_bytes=100_000)
    lags = {lag_key("id-sea", number, 2): number for number in range(100)}
    for number in range(100):
        history.add(Sample(START_MS + number * 2_000, True, {}, lags))
        assert history.size_bytes <= 100_000
    read = history.read([lag_key("id-sea", 7, 2)], 0)
    assert 20 < len(read.times_ms) < 100
    assert set(read.values[0]) == {7}


def test_a_lag_beyond_the_number_of_series_is_not_kept() -> None:
    history = History(max_lag_series=2)
    keys = [lag_key("id-sea", 0, broker) for broker in (1, 2, 3)]
    history.add(Sample(START_MS, True, {}, dict.fromkeys(keys, 4.0)))
    assert history.read(keys, 0).values == [[4], [4], [None]]


def test_the_place_of_a_series_that_ended_has_no_values_of_the_next_one() -> None:
    history = History(max_lag_series=1)
    before, after = lag_key("id-before", 0, 1), lag_key("id-after", 0, 1)
    history.add(Sample(START_MS, True, {}, {before: 9.0}))
    history.add(Sample(START_MS + 2_000, True, {}, {after: 1.0}))
    assert history.read([after], 0).values == [[None, 1]]
    assert history.read([before], 0).values == [[None, None]]


def test_a_clock_that_goes_back_a_little_leaves_times_ascending() -> None:
    history = History()
    add(history, 10_000, {RATE: 1})
    add(history, 9_000, {RATE: 2})
    assert points(history, RATE) == [(10_000, 1), (10_001, 2)]


def test_a_clock_that_goes_back_far_begins_the_history_again() -> None:
    history = History()
    add(history, 3_600_000, {RATE: 1})
    add(history, 0, {RATE: 2})
    assert points(history, RATE) == [(0, 2)]


def test_a_full_ring_over_nine_thousand_replicas_is_within_its_bytes() -> None:
    figures = {
        topic_key(name, f"id-{number}"): 1.0
        for number in range(TOPICS)
        for name in ("records_per_second", "bytes_per_second", "total_bytes", "max_lag_records")
    }
    lags = {
        lag_key(f"id-{p % TOPICS}", p, broker): 0.0
        for p in range(PARTITIONS)
        for broker in range(FOLLOWERS)
    }
    samples = 10
    history = History()
    history.add(Sample(START_MS, True, figures, lags))
    first_bytes = history.size_bytes
    tracemalloc.start()
    for number in range(1, samples + 1):
        history.add(Sample(START_MS + number * 2_000, True, figures, lags))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = history.size_bytes - first_bytes
    assert used <= 1.1 * counted
    assert first_bytes + counted / samples * (MAX_FINE_SAMPLES + MAX_COARSE_SAMPLES) < MAX_BYTES
