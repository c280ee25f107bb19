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
    LatestClock,
    PeerClock,
    Reading,
    hearing,
)
from tidelog_broker.storage.clock_file import CLOCK_NAME, read_clock, write_clock
from unit.broker.log.builders import DIRECTORY
from unit.broker.log.memory_disk import MemoryDisk

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


class Machine:
    """Its clocks, and what is said of the doubt."""

    def __init__(
        self,
        last: Reading | None = None,
        boot_id: str = "boot",
        wall_ms: int = NOW_MS,
        monotonic_ms: int = 5_000,
    ) -> None:
        self.wall_ms, self.monotonic_ms = wall_ms, monotonic_ms
        self.said: list[str] = []
        self.check = ClockCheck(
            Reading(self.wall_ms, self.monotonic_ms, boot_id), last, self._changed
        )

    def _changed(self, doubt: Doubt, end: str) -> None:
        self.said.append(end or doubt.reason)

    def left(self, boot_id: str = "boot") -> Reading:
        """For the next process."""
        return self.check.reading(self.monotonic_ms, boot_id)

    @property
    def append_ms(self) -> int:
        return AppendClock(_Clocks(self), self.check).wall_ms()

    @property
    def latest_ms(self) -> int:
        return LatestClock(_Clocks(self), self.check).wall_ms()

    @property
    def retention_ms(self) -> int:
        return self.check.retention_ms(self.wall_ms, self.monotonic_ms)

    def passes(self, ms: int) -> None:
        self.wall_ms += ms
        self.monotonic_ms += ms

    def hears(self, broker_id: int, wall_ms: int) -> None:
        self.check.heard(broker_id, wall_ms, self.monotonic_ms)

    def fetched_by(self, broker_id: int, wall_ms: int) -> None:
        """As its replica fetches say it, after which the broker looks again."""
        hearing(_Clocks(self), self.check)(broker_id, wall_ms)

    def restarted(self, *, is_rebooted: bool, off_ms: int = 1_000) -> Machine:
        """With the clock as it is."""
        if is_rebooted:
            return Machine(self.left(), "next boot", self.wall_ms + off_ms, 500)
        return Machine(self.left(), "boot", self.wall_ms + off_ms, self.monotonic_ms + off_ms)

    @property
    def skews_ms(self) -> dict[int, int]:
        return self.check.skews_ms(self.wall_ms, self.monotonic_ms)

    @property
    def steady_ms(self) -> int:
        return self.check.steady_ms(self.wall_ms, self.monotonic_ms)

    @property
    def believes(self) -> bool:
        return self.check.check(self.wall_ms, self.monotonic_ms)


class _Clocks:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def wall_ms(self) -> int:
        return self._machine.wall_ms

    def monotonic_ms(self) -> int:
        return self._machine.monotonic_ms


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
    assert machine.said == [
        "it has jumped ahead of monotonic time",
        "nothing contradicts the clock any more",
    ]


def test_a_jump_is_believed_once_other_brokers_have_the_same_time() -> None:
    machine = Machine()
    machine.wall_ms += YEAR_MS
    assert not machine.believes
    machine.hears(2, machine.wall_ms + MAX_SKEW_MS)
    assert machine.believes
    machine.monotonic_ms += 10 * PEER_VALID_MS
    machine.wall_ms += 10 * PEER_VALID_MS
    assert machine.believes


@pytest.mark.parametrize("is_first", [False, True])
def test_a_jump_is_not_confirmed_by_brokers_that_jumped_as_well(is_first: bool) -> None:
    """As one wrong time server makes all clocks jump, this one first or last."""
    machine = Machine()
    for broker_id in (2, 3):
        machine.fetched_by(broker_id, machine.wall_ms)
    assert machine.believes
    if is_first:
        machine.wall_ms += YEAR_MS
    for broker_id in (2, 3):
        machine.passes(1_000)
        machine.fetched_by(broker_id, machine.wall_ms + (0 if is_first else YEAR_MS))
    if not is_first:
        machine.wall_ms += YEAR_MS
    for _ in range(3):
        assert not machine.believes
        machine.passes(1_000)
        for broker_id in (2, 3):
            machine.fetched_by(broker_id, machine.wall_ms)
    # Nor for the next process.
    for is_rebooted in (False, True):
        machine = machine.restarted(is_rebooted=is_rebooted)
        for broker_id in (2, 3):
            machine.fetched_by(broker_id, machine.wall_ms)
        assert not machine.believes
    # One that stood, and was off before, confirms it.
    machine.fetched_by(4, machine.wall_ms)
    assert machine.believes


def test_clocks_that_jumped_together_are_believed_once_they_are_put_right() -> None:
    machine = Machine()
    machine.fetched_by(2, machine.wall_ms)
    machine.wall_ms += YEAR_MS
    machine.fetched_by(2, machine.wall_ms)
    assert not machine.believes
    machine.wall_ms -= YEAR_MS
    machine.fetched_by(2, machine.wall_ms)
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


def test_what_was_heard_long_ago_and_a_broker_that_does_not_say_begin_no_doubt() -> None:
    machine = Machine()
    machine.hears(2, machine.wall_ms - YEAR_MS)
    machine.hears(3, 0)
    assert list(machine.check.peers) == [2]
    machine.passes(PEER_VALID_MS + 1)
    assert machine.believes
    assert machine.skews_ms == {}


def test_a_clock_that_differs_is_looked_at_when_it_is_heard() -> None:
    machine = Machine()
    machine.fetched_by(2, machine.wall_ms - YEAR_MS)
    assert machine.check.doubt is not None
    machine.passes(PEER_VALID_MS + 1)
    assert not machine.believes


def ahead_since_its_start() -> Machine:
    """And then the others, which have said so, fall silent."""
    machine = Machine(wall_ms=NOW_MS + HOUR_MS)
    for broker_id in (2, 3):
        machine.fetched_by(broker_id, NOW_MS)
    machine.passes(10 * PEER_VALID_MS)
    assert machine.skews_ms == {}
    assert not machine.believes
    return machine


def test_a_doubt_does_not_end_because_the_others_fall_silent() -> None:
    machine = ahead_since_its_start()
    assert machine.said == ["it is ahead of 1 of the 1 other brokers that were heard"]
    machine.passes(MAX_DOUBT_MS - 10 * PEER_VALID_MS)
    assert not machine.believes
    machine.passes(1)
    assert machine.believes
    assert machine.said[1:] == ["nothing contradicts the clock any more"]


def test_a_doubt_ends_once_others_have_the_same_time_or_the_clock_has_theirs() -> None:
    machine = ahead_since_its_start()
    machine.fetched_by(2, machine.wall_ms)
    assert not machine.believes
    machine.fetched_by(3, machine.wall_ms)
    assert machine.believes
    assert machine.said[1:] == ["2 other brokers have the same time"]
    machine = ahead_since_its_start()
    machine.wall_ms -= HOUR_MS
    assert machine.believes
    # What it was believed to be before does not count any more.
    assert machine.steady_ms == machine.wall_ms + HOUR_MS
    assert machine.retention_ms == machine.wall_ms


@pytest.mark.parametrize("is_rebooted", [False, True])
def test_a_doubt_outlives_the_process_and_the_boot(is_rebooted: bool) -> None:
    machine = ahead_since_its_start().restarted(is_rebooted=is_rebooted)
    assert not machine.believes
    doubt = machine.check.doubt
    assert doubt is not None
    assert machine.monotonic_ms - doubt.since_ms == 10 * PEER_VALID_MS
    machine.passes(PEER_VALID_MS + 1)
    machine = machine.restarted(is_rebooted=is_rebooted)
    assert not machine.believes
    machine.fetched_by(2, machine.wall_ms - HOUR_MS)
    machine.fetched_by(3, machine.wall_ms)
    assert not machine.believes
    machine.fetched_by(2, machine.wall_ms)
    assert machine.believes


def test_a_jump_is_still_doubted_after_a_reboot_of_a_broker_that_has_no_others() -> None:
    machine = Machine()
    machine.wall_ms += HOUR_MS
    assert not machine.believes
    machine = machine.restarted(is_rebooted=True)
    assert not machine.believes
    machine.wall_ms -= HOUR_MS
    assert machine.believes


def test_a_clock_that_other_brokers_contradict_is_never_believed() -> None:
    """One that has jumped ahead would delete all that is older than its jump."""
    machine = Machine()
    for _ in range(10 * 24):
        machine.fetched_by(2, machine.wall_ms - YEAR_MS)
        machine.passes(HOUR_MS)
        assert not machine.believes
    assert len(machine.said) == 1
    # What the other one said last stands for a day.
    machine.passes(MAX_DOUBT_MS - HOUR_MS)
    assert not machine.believes
    machine.passes(1)
    assert machine.believes


@pytest.mark.parametrize("is_rebooted", [False, True])
def test_a_contradicted_clock_is_believed_by_no_later_process(is_rebooted: bool) -> None:
    machine = Machine(boot_id="boot 0")
    for run in range(1, 6):
        machine.fetched_by(2, machine.wall_ms - YEAR_MS)
        machine.passes(MAX_DOUBT_MS // 2)
        assert not machine.believes
        last = machine.left(f"boot {run - 1 if is_rebooted else 0}")
        monotonic_ms = 5_000 if is_rebooted else machine.monotonic_ms
        boot_id = f"boot {run if is_rebooted else 0}"
        machine = Machine(last, boot_id, machine.wall_ms, monotonic_ms)
        assert not machine.believes


def test_a_doubt_that_no_other_broker_shares_ends_after_a_day() -> None:
    machine = Machine()
    machine.wall_ms += YEAR_MS
    assert not machine.believes
    machine.passes(MAX_DOUBT_MS - 1)
    assert not machine.believes
    machine.passes(1)
    assert machine.believes
    assert machine.said[-1] == "no other broker has contradicted it for a day"


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
    assert machine.left() == Reading(NOW_MS + 1_000, 6_000, "boot")
    assert not machine.believes
    machine.passes(1_000)
    left = machine.left()
    assert left == Reading(NOW_MS + 2_000, 7_000, "boot", 1_000)
    left = left._replace(peers=((2, PeerClock(NOW_MS, 6_500)),))
    write_clock(disk, DIRECTORY, left)
    assert read_clock(disk, DIRECTORY) == left
    # As earlier releases write it.
    former = b'{"wall_ms": 1, "monotonic_ms": 2, "boot_id": "boot"}'
    disk.write_atomically(DIRECTORY / CLOCK_NAME, former, sync=False)
    assert read_clock(disk, DIRECTORY) == Reading(1, 2, "boot")
    disk.write_atomically(DIRECTORY / CLOCK_NAME, b"{", sync=False)
    assert read_clock(disk, DIRECTORY) is None


@pytest.mark.parametrize("is_rebooted", [False, True])
def test_a_doubt_lasts_a_day_however_often_the_broker_is_restarted(is_rebooted: bool) -> None:
    run_ms, off_ms = MAX_DOUBT_MS // 4, 3_600_000
    machine = Machine(Reading(NOW_MS - YEAR_MS, 9_000_000, "boot before"), "boot 0")
    for run in range(1, 5):
        assert not machine.believes
        machine.passes(run_ms)
        assert machine.believes is (run == 4)
        boot_id = f"boot {run if is_rebooted else 0}"
        last = machine.left(f"boot {run - 1 if is_rebooted else 0}")
        monotonic_ms = 5_000 if is_rebooted else machine.monotonic_ms + off_ms
        machine = Machine(last, boot_id, machine.wall_ms + off_ms, monotonic_ms)
    assert machine.believes


def test_a_doubt_that_ended_is_not_continued_by_the_next_process() -> None:
    machine = Machine(Reading(NOW_MS - YEAR_MS, 9_000_000, "boot before"))
    assert not machine.believes
    machine.passes(MAX_DOUBT_MS - 1)
    machine.wall_ms -= YEAR_MS  # it is put right
    assert machine.believes
    assert machine.left().doubted_ms == 0
    # One that finds it right begins from nothing later.
    machine = Machine(Reading(NOW_MS - 4_000, 1_000, "boot", MAX_DOUBT_MS - 1))
    assert machine.believes
    machine.wall_ms += YEAR_MS
    assert not machine.believes
    machine.passes(MAX_DOUBT_MS - 1)
    assert not machine.believes


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


@pytest.mark.parametrize(
    ("others", "append_ms", "latest_ms"),
    [
        # It and one other: the records get its own time.
        ({2: HOUR_MS}, 0, HOUR_MS),
        ({2: -HOUR_MS}, 0, 0),
        ({2: MAX_SKEW_MS}, 0, 0),
        # It is behind most.
        ({2: HOUR_MS, 3: HOUR_MS + 5}, HOUR_MS, HOUR_MS),
        ({2: HOUR_MS, 3: YEAR_MS}, HOUR_MS, HOUR_MS),
        ({2: HOUR_MS, 3: HOUR_MS, 4: HOUR_MS, 5: 0}, HOUR_MS, HOUR_MS),
        # One that is wrong among three moves none that is right.
        ({2: YEAR_MS, 3: 0}, 0, 0),
        ({2: YEAR_MS, 3: -YEAR_MS}, 0, 0),
        ({2: YEAR_MS, 3: YEAR_MS, 4: 0, 5: 0}, 0, 0),
        # As many as not.
        ({2: HOUR_MS, 3: HOUR_MS, 4: 0}, 0, HOUR_MS),
    ],
)
def test_a_clock_that_is_behind_most_others_dates_appends_by_the_middle_one(
    others: dict[int, int], append_ms: int, latest_ms: int
) -> None:
    machine = Machine()
    for broker_id, ahead_ms in others.items():
        machine.fetched_by(broker_id, machine.wall_ms + ahead_ms)
    for _ in range(2):
        assert machine.append_ms - machine.wall_ms == append_ms
        assert machine.latest_ms - machine.wall_ms == latest_ms
        # Nothing is deleted by another's clock.
        assert machine.retention_ms == machine.wall_ms
        # The others fall silent.
        machine.passes(10 * PEER_VALID_MS)
    machine = machine.restarted(is_rebooted=False)
    assert machine.append_ms - machine.wall_ms == append_ms
    machine.passes(MAX_DOUBT_MS)
    assert machine.append_ms == machine.wall_ms


def test_a_clock_that_is_behind_and_is_put_right_counts_at_once() -> None:
    machine = Machine()
    for broker_id in (2, 3):
        machine.fetched_by(broker_id, machine.wall_ms + HOUR_MS)
    machine.wall_ms += HOUR_MS
    assert machine.append_ms == machine.latest_ms == machine.wall_ms
    assert machine.believes


def test_after_a_jump_back_ages_are_counted_on_where_another_broker_has_that_time() -> None:
    machine = Machine()
    machine.wall_ms -= YEAR_MS
    assert machine.retention_ms == machine.wall_ms
    machine.fetched_by(2, NOW_MS)
    assert machine.retention_ms == machine.steady_ms == NOW_MS


def test_only_a_clock_that_is_off_needs_another_look_at_the_others() -> None:
    machine = Machine()
    assert machine.check.is_steady(machine.wall_ms, machine.monotonic_ms)
    for off_ms in (MAX_STEP_MS + 1, -MAX_STEP_MS - 1):
        assert not machine.check.is_steady(machine.wall_ms + off_ms, machine.monotonic_ms)
