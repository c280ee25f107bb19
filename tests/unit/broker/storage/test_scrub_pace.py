"""A pass of the scrub that will not end within its period is reported, with what bounds it."""

from __future__ import annotations

import pytest

from tidelog_broker.storage.scrub_pace import (
    BY_CPU,
    BY_DISK,
    BY_RATE,
    MIN_MEASURED_S,
    STOPPED_AFTER_MS,
    ScrubDelay,
    ScrubPace,
)
from tidelog_broker.storage.scrub_state import ScrubState

DAY_MS = 86_400_000
PERIOD_MS = 14 * DAY_MS
BEGAN_MS = 1_000_000
CHUNK_BYTES = 1 << 20
RATE = 8 << 20
# What a pass checks in its period at the highest rate.
FULL_BYTES = RATE * PERIOD_MS // 1000


def pace(*, period_ms: int = PERIOD_MS, cpu_percent: float = 1.0) -> ScrubPace:
    return ScrubPace(period_ms=period_ms, max_bytes_per_second=RATE, cpu_percent=cpu_percent)


def after(
    pace: ScrubPace,
    total_bytes: int,
    *,
    cpu_s: float = 0.0,
    took_s: float = 0.0,
    off_ms: int = 0,
    seconds: float = 2 * MIN_MEASURED_S,
) -> ScrubDelay | None:
    """The delay after this many seconds of a pass whose chunks take this long, and `off_ms` in
    which the broker did not run."""
    state = ScrubState("topic", 0, 0, pass_began_ms=BEGAN_MS)
    passed_s = 0.0
    while passed_s < seconds:
        passed_s += took_s
        state.pass_bytes += CHUNK_BYTES
        now_ms = BEGAN_MS + off_ms + int(passed_s * 1000)
        passed_s += pace.pause_s(CHUNK_BYTES, cpu_s, took_s, state, total_bytes, now_ms)
    now_ms = BEGAN_MS + off_ms + int(passed_s * 1000)
    return pace.delay(state, total_bytes, now_ms, now_ms)


def pass_ms(
    pace: ScrubPace, total_bytes: int, *, off_ms: int = 0, checked_before: int = 0
) -> float:
    """How long a pass takes from its beginning, of which `off_ms` after `checked_before` bytes."""
    state = ScrubState("topic", 0, 0, pass_began_ms=BEGAN_MS, pass_bytes=checked_before)
    chunk = total_bytes // 1000
    passed_ms = float(off_ms)
    while state.pass_bytes < total_bytes:
        state.pass_bytes += chunk
        now_ms = BEGAN_MS + int(passed_ms)
        passed_ms += 1000 * pace.pause_s(chunk, 0.0, 0.0, state, total_bytes, now_ms)
    return passed_ms


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_a_pass_that_keeps_its_pace_is_not_overdue(share: float) -> None:
    assert after(pace(), int(FULL_BYTES * share)) is None


def test_more_data_than_the_rate_allows_is_overdue() -> None:
    delay = after(pace(), 2 * FULL_BYTES)
    assert delay is not None
    assert delay.reason == BY_RATE
    assert delay.expected_ms == pytest.approx(2 * PERIOD_MS, rel=0.01)
    assert delay.pressure()[:4] == ("scrub", delay.expected_ms, PERIOD_MS, BEGAN_MS)


def test_small_batches_are_overdue_for_their_cpu_time_and_a_larger_share_is_enough() -> None:
    """Batches of 100 bytes are checked at some 9 MB for each second of CPU time."""
    small, total = CHUNK_BYTES / 9e6, 200 << 30
    delay = after(pace(), total, cpu_s=small)
    assert delay is not None
    assert delay.reason == BY_CPU
    assert after(pace(cpu_percent=10.0), total, cpu_s=small) is None


def test_a_slow_disk_is_named() -> None:
    delay = after(pace(), FULL_BYTES, took_s=1.0)
    assert delay is not None
    assert delay.reason == BY_DISK


@pytest.mark.parametrize("off_ms", [DAY_MS, PERIOD_MS // 2, 2 * PERIOD_MS])
def test_a_pass_that_is_late_after_downtime_is_not_overdue(off_ms: int) -> None:
    assert after(pace(), FULL_BYTES // 2, off_ms=off_ms) is None


def test_after_downtime_a_pass_catches_up() -> None:
    period_ms = 600_000
    total = RATE * period_ms // 1000 // 4
    off_ms = period_ms // 2
    took_ms = pass_ms(pace(period_ms=period_ms), total, off_ms=off_ms, checked_before=total // 10)
    assert took_ms == pytest.approx(period_ms, rel=0.01)


def test_a_pass_whose_period_is_over_runs_at_the_highest_rate() -> None:
    period_ms = 600_000
    total = RATE * period_ms // 1000 // 4
    took_ms = pass_ms(pace(period_ms=period_ms), total, off_ms=2 * period_ms)
    assert took_ms == pytest.approx(2 * period_ms + period_ms / 4, rel=0.01)


def test_a_longer_pause_than_the_longest_counts_as_the_longest() -> None:
    """Each chunk needs 200 s of a processor's share, and gets 60 s."""
    delay = after(pace(), CHUNK_BYTES * 10_000, cpu_s=1.0)
    assert delay is None


def test_a_pause_of_the_process_during_a_chunk_does_not_count_as_a_slow_disk() -> None:
    paused, state = pace(), ScrubState("topic", 0, 0, pass_began_ms=BEGAN_MS)
    paused.pause_s(CHUNK_BYTES, 0.0, 3_600.0, state, FULL_BYTES, BEGAN_MS)
    assert paused.delay(state, FULL_BYTES, BEGAN_MS, 0) is None


def test_nothing_is_expected_from_a_short_measurement() -> None:
    assert after(pace(), 2 * FULL_BYTES, seconds=MIN_MEASURED_S / 2) is None


def test_a_pass_that_has_stopped_is_reported_until_it_continues() -> None:
    stopped, state = pace(), ScrubState("topic", 0, 0, pass_began_ms=BEGAN_MS)
    stopped.failed("no descriptor is free", 0)
    stopped.failed("no descriptor is free", STOPPED_AFTER_MS)
    assert stopped.delay(state, 1, BEGAN_MS, STOPPED_AFTER_MS - 1) is None
    delay = stopped.delay(state, 1, BEGAN_MS, STOPPED_AFTER_MS)
    assert delay is not None
    assert delay.reason == "it has stopped: no descriptor is free"
    stopped.pause_s(CHUNK_BYTES, 0.0, 0.0, state, 1, BEGAN_MS)
    assert stopped.delay(state, 1, BEGAN_MS, STOPPED_AFTER_MS) is None


@pytest.mark.parametrize(
    ("period_ms", "state"),
    [
        (0, ScrubState("topic", 0, 0, pass_began_ms=BEGAN_MS)),
        (PERIOD_MS, ScrubState(pass_began_ms=BEGAN_MS)),
        (PERIOD_MS, ScrubState()),
    ],
    ids=["on request only", "between passes", "before the first pass"],
)
def test_what_is_not_running_by_itself_is_not_overdue(period_ms: int, state: ScrubState) -> None:
    assert pace(period_ms=period_ms).delay(state, 1, BEGAN_MS + 9 * PERIOD_MS, 0) is None
