"""How long the operations of a disk took recently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from tidelog_broker.log.disk import SYNC, WRITE, OsDisk
from tidelog_broker.storage.disk_times import COUNT_WINDOW_MS, MIN_SYNCS, DiskTimes

SLOW_MS = 1_000


class SetClock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def times(clock: SetClock) -> DiskTimes:
    return DiskTimes(clock)


def took(times: DiskTimes, clock: SetClock, ms: int, name: str = SYNC, at_once: int = 1) -> None:
    with ExitStack() as stack:
        for _ in range(at_once):
            stack.enter_context(times.timed(name))
        clock.now_ms += ms


def quick_for_a_minute(times: DiskTimes, clock: SetClock, a_second: int) -> None:
    for _ in range(60 * a_second):
        took(times, clock, 2)
        clock.now_ms += 1_000 // a_second - 2


def test_the_typical_time_is_the_median_of_several_syncs(times: DiskTimes, clock: SetClock) -> None:
    for _ in range(MIN_SYNCS - 1):
        took(times, clock, 2_000)
    assert times.slowest() == (0, "")
    took(times, clock, 300)
    took(times, clock, 300)
    took(times, clock, 300)
    assert times.slowest() == (300, SYNC)
    clock.now_ms += COUNT_WINDOW_MS + 1
    assert times.slowest() == (0, "")


@pytest.mark.parametrize(("a_second", "at_once"), [(2, 1), (20, 3), (50, 8)])
def test_a_disk_that_becomes_slow_is_recognized_within_seconds(
    times: DiskTimes, clock: SetClock, a_second: int, at_once: int
) -> None:
    quick_for_a_minute(times, clock, a_second)
    took(times, clock, 4_000, at_once=at_once)
    assert times.slowest().ms < SLOW_MS
    took(times, clock, 4_000, at_once=at_once)
    assert times.slowest() == (4_000, SYNC)


def late_once(times: DiskTimes, clock: SetClock) -> Iterator[int]:
    quick_for_a_minute(times, clock, 20)
    with times.timed(SYNC):
        for _ in range(48):
            clock.now_ms += 100
            yield times.slowest().ms
    for _ in range(500):
        took(times, clock, 2)
        clock.now_ms += 98
        yield times.slowest().ms


def test_a_single_late_sync_does_not_make_a_disk_slow(times: DiskTimes, clock: SetClock) -> None:
    assert max(late_once(times, clock)) < SLOW_MS


def test_slow_syncs_that_take_most_of_the_time_count_among_many_quick_ones(
    times: DiskTimes, clock: SetClock
) -> None:
    for number in range(600):
        took(times, clock, 4_900 if number % 5 < 2 else 2)
    assert times.slowest() == (4_900, SYNC)


@pytest.mark.parametrize(
    ("slow_ms", "quick_ms"), [(1_500, 1_500), (4_000, 6_000), (1_200, 800), (1_500, 4_500)]
)
def test_a_slow_disk_does_not_look_healthy_between_two_slow_operations(
    times: DiskTimes, clock: SetClock, slow_ms: int, quick_ms: int
) -> None:
    seen = []
    for _ in range(60):
        took(times, clock, slow_ms, WRITE)
        seen.append(times.slowest().ms >= SLOW_MS)
        for _ in range(quick_ms // 100):
            took(times, clock, 2, WRITE)
            clock.now_ms += 98
            seen.append(times.slowest().ms >= SLOW_MS)
    changes = sum(one != other for one, other in pairwise(seen))
    assert (changes, seen[-1]) == (1, True)


def test_a_disk_that_is_quick_again_is_recognized_within_half_a_minute(
    times: DiskTimes, clock: SetClock
) -> None:
    for _ in range(20):
        took(times, clock, 4_000)
    for _ in range(300):
        took(times, clock, 2)
        clock.now_ms += 98
    assert times.slowest().ms < SLOW_MS


def test_of_a_slow_write_and_a_slower_sync_the_write_is_reported(
    times: DiskTimes, clock: SetClock
) -> None:
    """A slow write holds up the entire process."""
    for _ in range(4):
        took(times, clock, 3_000)
        took(times, clock, 1_500, WRITE)
    assert times.slowest() == (1_500, WRITE)


def test_an_operation_that_does_not_end_counts_after_five_seconds(
    times: DiskTimes, clock: SetClock
) -> None:
    with times.timed(WRITE):
        clock.now_ms += 4_999
        assert times.slowest().ms == 0
        clock.now_ms += 1
        assert times.slowest() == (5_000, WRITE)


def test_a_failed_operation_has_ended(times: DiskTimes, clock: SetClock) -> None:
    with pytest.raises(OSError, match="gone"), times.timed(SYNC):
        raise OSError("gone")
    clock.now_ms += 9_000
    assert times.slowest() == (0, "")


def test_a_stalled_process_does_not_count_against_its_disk(
    times: DiskTimes, clock: SetClock
) -> None:
    began_ms = clock.now_ms
    took(times, clock, 9_000, WRITE)
    assert times.slowest([(began_ms + 10, clock.now_ms - 10)]) == (0, "")
    assert times.slowest([(began_ms + 10, began_ms + 1_010)]) == (8_000, WRITE)


def test_the_real_disk_times_operations_that_may_wait(tmp_path: Path) -> None:
    seen: list[str] = []
    times = DiskTimes(SetClock())

    def timed(name: str) -> AbstractContextManager[None]:
        seen.append(name)
        return times.timed(name)

    disk = OsDisk(timed)
    file = disk.open(tmp_path / "log", create=True)
    file.write_at(0, [b"some"])
    file.read_at(4, 0)
    file.sync()
    file.close()
    disk.write_atomically(tmp_path / "state", b"x", sync=True)
    changed = "change of a directory"
    assert seen == ["open", "write", "read", "sync", "write", "sync", changed, "sync"]
