"""How long a disk takes to sync, of late."""

from __future__ import annotations

from tidelog_broker.storage.sync_times import MIN_SYNCS, STUCK_MS, WINDOW_MS, SyncTimes


class SetClock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def synced(times: SyncTimes, clock: SetClock, took_ms: int) -> None:
    with times.timed():
        clock.now_ms += took_ms


def test_it_is_the_median_of_some_syncs() -> None:
    clock = SetClock()
    times = SyncTimes(clock)
    for _ in range(MIN_SYNCS - 1):
        synced(times, clock, 2_000)
    assert times.typical_ms() == 0
    synced(times, clock, 9)
    assert times.typical_ms() == 2_000
    for _ in range(MIN_SYNCS):
        synced(times, clock, 9)
    assert times.typical_ms() == 9


def test_old_syncs_count_no_more() -> None:
    clock = SetClock()
    times = SyncTimes(clock)
    for _ in range(MIN_SYNCS):
        synced(times, clock, 2_000)
    clock.now_ms += WINDOW_MS
    assert times.typical_ms() == 0


def test_a_sync_that_does_not_end_counts_once_it_is_stuck() -> None:
    clock = SetClock()
    times = SyncTimes(clock)
    with times.timed():
        clock.now_ms += STUCK_MS - 1
        assert times.typical_ms() == 0
        clock.now_ms += 1
        assert times.typical_ms() == STUCK_MS
    assert times.typical_ms() == 0


def test_a_sync_that_fails_has_ended() -> None:
    clock = SetClock()
    times = SyncTimes(clock)
    try:
        with times.timed():
            raise OSError
    except OSError:
        clock.now_ms += STUCK_MS
    assert times.typical_ms() == 0
