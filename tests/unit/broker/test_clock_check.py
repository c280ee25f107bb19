"""When a broker doubts its own clock, and what ends that."""

from __future__ import annotations

import pytest

from tidelog_broker.clock_check import (
    MAX_DOUBT_MS,
    MAX_OFF_MS,
    MAX_SKEW_MS,
    MAX_STEP_MS,
    PEER_VALID_MS,
    AppendClock,
    ClockCheck,
    Doubt,
    Reading,
)
from tidelog_broker.storage.clock_file import CLOCK_NAME, read_clock, write_clock
from unit.broker.log.builders import DIRECTORY
from unit.broker.log.memory_disk import MemoryDisk

NOW_MS = 1_700_000_000_000
YEAR_MS = 365 * 24 * 3_600_000


class Machine:
    """Its clocks, and what is said of the doubt."""

    def __init__(self, last: Reading | None = None, boot_id: str = "boot") -> None:
        self.wall_ms, self.monotonic_ms = NOW_MS, 5_000
        self.said: list[str] = []
        self.check = ClockCheck(
            Reading(self.wall_ms, self.monotonic_ms, boot_id), last, self._changed
        )

    def _changed(self, doubt: Doubt, end: str) -> None:
        self.said.append(end or doubt.reason)

    @property
    def append_ms(self) -> int:
        machine = self

        class Clocks:
            def wall_ms(self) -> int:
                return machine.wall_ms

            def monotonic_ms(self) -> int:
                return machine.monotonic_ms

        return AppendClock(Clocks(), self.check).wall_ms()

    def passes(self, ms: int) -> None:
        self.wall_ms += ms
        self.monotonic_ms += ms

    def hears(self, broker_id: int, wall_ms: int) -> None:
        self.check.heard(broker_id, wall_ms, self.monotonic_ms)

    @property
    def skews_ms(self) -> dict[int, int]:
        return self.check.skews_ms(self.wall_ms, self.monotonic_ms)

    @property
    def steady_ms(self) -> int:
        return self.check.steady_ms(self.wall_ms, self.monotonic_ms)

    @property
    def believes(self) -> bool:
        return self.check.check(self.wall_ms, self.monotonic_ms)


def test_a_clock_that_goes_with_monotonic_time_is_believed() -> None:
    machine = Machine()
    machine.passes(YEAR_MS)
    assert machine.believes
    machine.wall_ms += MAX_STEP_MS
    assert machine.believes
    machine.wall_ms -= YEAR_MS
    assert machine.believes
    assert machine.said == []


def test_a_jump_ahead_is_doubted_until_it_is_taken_back() -> None:
    machine = Machine()
    machine.wall_ms += MAX_STEP_MS + 1
    assert not machine.believes
    assert machine.check.doubt is not None
    assert machine.check.doubt.ahead_ms == MAX_STEP_MS + 1
    machine.passes(1_000)
    assert not machine.believes
    machine.wall_ms -= MAX_STEP_MS
    assert machine.believes
    assert machine.said == ["it has jumped ahead of monotonic time", "the clock is right again"]


def test_a_jump_is_believed_once_other_brokers_have_the_same_time() -> None:
    machine = Machine()
    machine.wall_ms += YEAR_MS
    assert not machine.believes
    machine.hears(2, machine.wall_ms + MAX_SKEW_MS)
    assert machine.believes
    machine.monotonic_ms += 10 * PEER_VALID_MS
    machine.wall_ms += 10 * PEER_VALID_MS
    assert machine.believes


def test_what_others_said_before_a_jump_does_not_speak_for_it() -> None:
    machine = Machine()
    for broker_id in (2, 3):
        machine.hears(broker_id, machine.wall_ms)
    machine.passes(1_000)
    assert machine.skews_ms == {2: 0, 3: 0}
    machine.wall_ms += YEAR_MS
    assert not machine.believes
    assert machine.skews_ms == {2: -YEAR_MS, 3: -YEAR_MS}


@pytest.mark.parametrize(
    ("behind", "agreeing", "believes"), [(1, 0, False), (1, 1, False), (1, 2, True), (2, 1, False)]
)
def test_a_clock_that_is_ahead_of_as_many_as_agree_is_doubted(
    behind: int, agreeing: int, believes: bool
) -> None:
    machine = Machine()
    for broker_id in range(behind):
        machine.hears(broker_id, machine.wall_ms - MAX_SKEW_MS - 1)
    for broker_id in range(behind, behind + agreeing):
        machine.hears(broker_id, machine.wall_ms)
    assert machine.believes is believes
    if not believes:
        assert machine.said == [
            f"it is ahead of {behind} of the {behind + agreeing} other brokers that were heard"
        ]


def test_a_clock_that_is_behind_the_others_deletes_nothing_early_and_is_believed() -> None:
    machine = Machine()
    machine.hears(2, machine.wall_ms + YEAR_MS)
    assert machine.believes
    assert machine.skews_ms == {2: YEAR_MS}


def test_what_was_heard_long_ago_and_a_broker_that_does_not_say_count_for_nothing() -> None:
    machine = Machine()
    machine.hears(2, machine.wall_ms - YEAR_MS)
    machine.hears(3, 0)
    assert list(machine.check.peers) == [2]
    machine.passes(PEER_VALID_MS + 1)
    assert machine.believes
    assert machine.skews_ms == {}


def test_a_doubt_ends_after_a_day() -> None:
    machine = Machine()
    machine.wall_ms += YEAR_MS
    assert not machine.believes
    machine.passes(MAX_DOUBT_MS - 1)
    assert not machine.believes
    machine.passes(1)
    assert machine.believes
    assert machine.said[-1] == "it has lasted as long as it may"


@pytest.mark.parametrize(
    ("last", "believes"),
    [
        (None, True),
        (Reading(NOW_MS - 4_000, 1_000, "boot"), True),
        (Reading(NOW_MS - YEAR_MS, 1_000, "boot"), False),
        (Reading(NOW_MS - MAX_OFF_MS, 9_000_000, "boot before"), True),
        (Reading(NOW_MS - MAX_OFF_MS - MAX_STEP_MS - 1, 9_000_000, "boot before"), False),
        (Reading(NOW_MS + YEAR_MS, 9_000_000, "boot before"), True),
    ],
)
def test_a_new_process_compares_with_what_the_last_one_left(
    last: Reading | None, believes: bool
) -> None:
    assert Machine(last).believes is believes


def test_what_is_left_is_the_time_that_is_believed() -> None:
    machine, disk = Machine(), MemoryDisk()
    disk.make_directory(DIRECTORY)
    assert read_clock(disk, DIRECTORY) is None
    machine.wall_ms += YEAR_MS
    machine.passes(1_000)
    left = Reading(*machine.check.believed(machine.monotonic_ms), "boot")
    write_clock(disk, DIRECTORY, left)
    assert read_clock(disk, DIRECTORY) == (NOW_MS + 1_000, 6_000, "boot")
    disk.write_atomically(DIRECTORY / CLOCK_NAME, b"{", sync=False)
    assert read_clock(disk, DIRECTORY) is None


@pytest.mark.parametrize("jump_ms", [MAX_STEP_MS + 1, -MAX_STEP_MS - 1, YEAR_MS, -NOW_MS])
def test_a_steady_clock_takes_part_in_no_jump(jump_ms: int) -> None:
    machine = Machine()
    machine.wall_ms += jump_ms
    for _ in range(2):
        machine.passes(1_000)
        _ = machine.believes
    assert machine.steady_ms == NOW_MS + 2_000
    machine.wall_ms -= jump_ms
    assert machine.steady_ms == machine.wall_ms


@pytest.mark.parametrize("step_ms", [MAX_STEP_MS, -MAX_STEP_MS])
def test_a_steady_clock_takes_part_in_a_step_of_a_time_server(step_ms: int) -> None:
    machine = Machine()
    machine.wall_ms += step_ms
    assert machine.steady_ms == NOW_MS + step_ms


def test_a_clock_that_went_back_counts_once_other_brokers_have_the_same_time() -> None:
    machine = Machine()
    machine.wall_ms -= YEAR_MS
    machine.hears(2, NOW_MS)
    machine.hears(3, machine.wall_ms)
    assert machine.believes
    assert machine.steady_ms == NOW_MS
    machine.hears(2, machine.wall_ms)
    assert machine.believes
    assert machine.steady_ms == NOW_MS - YEAR_MS


def test_a_clock_that_went_back_counts_after_a_day() -> None:
    machine = Machine()
    machine.wall_ms -= YEAR_MS
    assert machine.believes
    machine.passes(MAX_DOUBT_MS - 1)
    assert machine.believes
    assert machine.steady_ms == machine.wall_ms + YEAR_MS
    machine.passes(1)
    assert machine.believes
    assert machine.steady_ms == machine.wall_ms


def test_a_new_process_goes_on_where_the_last_one_was_when_the_clock_is_behind_that() -> None:
    machine = Machine(Reading(NOW_MS + YEAR_MS, 9_000_000, "boot before"))
    machine.passes(1_000)
    assert machine.steady_ms == NOW_MS + YEAR_MS + 1_000


def test_appends_are_never_dated_back_and_a_clock_that_was_off_for_long_dates_them_right() -> None:
    """A machine that was off for two days, or suspended, has a right clock that is in doubt:
    producers, whose clocks are right, must not be ahead of what appends are dated by."""
    off_ms = 2 * MAX_OFF_MS
    machine = Machine(Reading(NOW_MS - off_ms, 9_000_000, "boot before"))
    assert not machine.believes
    assert (machine.steady_ms, machine.append_ms) == (NOW_MS - off_ms, NOW_MS)
    machine = Machine()
    machine.wall_ms -= YEAR_MS
    assert machine.append_ms == NOW_MS


def test_only_a_clock_that_is_off_needs_another_look_at_the_others() -> None:
    machine = Machine()
    assert machine.check.is_steady(machine.wall_ms, machine.monotonic_ms)
    for off_ms in (MAX_STEP_MS + 1, -MAX_STEP_MS - 1):
        assert not machine.check.is_steady(machine.wall_ms + off_ms, machine.monotonic_ms)
