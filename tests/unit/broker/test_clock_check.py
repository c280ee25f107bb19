"""When a broker doubts its own clock, and what ends the doubt."""

from __future__ import annotations

import pytest

from tidelog_broker.clock_check import (
    MAX_DOUBT_MS,
    MAX_OFF_MS,
    MAX_REBOOT_DOUBT_MS,
    MAX_STEP_MS,
    PEER_VALID_MS,
    PeerClock,
    Reading,
)
from tidelog_broker.storage.clock_file import CLOCK_NAME, read_clock, write_clock
from tidelog_runtime.clock import MAX_SKEW_MS
from unit.broker.log.builders import DIRECTORY
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.machine_clocks import HOUR_MS, NOW_MS, YEAR_MS, Machine


def test_a_clock_that_agrees_with_monotonic_time_is_trusted() -> None:
    machine = Machine()
    machine.passes(YEAR_MS)
    assert machine.believes
    machine.wall_ms += MAX_STEP_MS
    assert machine.believes
    machine.wall_ms -= YEAR_MS
    assert machine.believes
    assert machine.reported == []


def test_a_jump_ahead_is_doubted_until_the_clock_is_set_back() -> None:
    machine = Machine()
    machine.wall_ms += MAX_STEP_MS + 1
    assert not machine.believes
    assert machine.check.doubt is not None
    assert machine.check.doubt.ahead_ms == MAX_STEP_MS + 1
    machine.passes(1_000)
    assert not machine.believes
    machine.wall_ms -= MAX_STEP_MS
    assert machine.believes
    assert machine.reported == [
        "it has jumped ahead of monotonic time",
        "nothing contradicts the clock any more",
    ]


def test_a_clock_that_ran_during_a_reboot_is_trusted_once_another_broker_has_its_time() -> None:
    before = Machine()
    before.hears(2, before.wall_ms)
    assert before.believes
    before.wall_ms += YEAR_MS
    machine = before.restarted(is_rebooted=True)
    assert not machine.believes
    machine.hears(2, machine.wall_ms + MAX_SKEW_MS)
    assert machine.believes
    machine.monotonic_ms += 10 * PEER_VALID_MS
    machine.wall_ms += 10 * PEER_VALID_MS
    assert machine.believes


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_broker_that_was_not_heard_before_a_jump_does_not_confirm_it(is_restarted: bool) -> None:
    """It may have jumped as well: a new topic makes brokers hear each other for the first time."""
    machine = Machine()
    machine.hears(2, machine.wall_ms)
    assert machine.believes
    machine.wall_ms += HOUR_MS
    if is_restarted:
        machine = machine.restarted(is_rebooted=False)
    machine.fetched_by(3, machine.wall_ms)
    assert not machine.believes
    machine.fetched_by(2, machine.wall_ms - HOUR_MS)
    assert not machine.believes
    machine.wall_ms -= HOUR_MS
    assert machine.believes


@pytest.mark.parametrize("is_first", [False, True])
def test_a_jump_is_not_confirmed_by_brokers_that_jumped_as_well(is_first: bool) -> None:
    """A wrong time server makes all clocks jump; this clock may be the first or the last one."""
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
    # The next process does not trust it either.
    for is_rebooted in (False, True):
        machine = machine.restarted(is_rebooted=is_rebooted)
        for broker_id in (2, 3):
            machine.fetched_by(broker_id, machine.wall_ms)
        assert not machine.believes
    machine.fetched_by(4, machine.wall_ms)
    assert not machine.believes


def test_clocks_that_jumped_together_are_trusted_once_they_are_corrected() -> None:
    machine = Machine()
    machine.fetched_by(2, machine.wall_ms)
    machine.wall_ms += YEAR_MS
    machine.fetched_by(2, machine.wall_ms)
    assert not machine.believes
    machine.wall_ms -= YEAR_MS
    machine.fetched_by(2, machine.wall_ms)
    assert machine.believes


def test_reports_from_before_a_jump_do_not_confirm_it() -> None:
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
def test_a_clock_ahead_of_as_many_others_as_agree_with_it_is_doubted(
    behind: int, agreeing: int, believes: bool
) -> None:
    machine = Machine()
    for broker_id in range(behind):
        machine.hears(broker_id, machine.wall_ms - MAX_SKEW_MS - 1)
    for broker_id in range(behind, behind + agreeing):
        machine.hears(broker_id, machine.wall_ms)
    assert machine.believes is believes
    if not believes:
        assert machine.reported == [
            f"it is ahead of {behind} of the {behind + agreeing} other brokers "
            "whose clocks are known"
        ]


def test_a_clock_behind_the_others_deletes_nothing_early_and_is_trusted() -> None:
    machine = Machine()
    machine.hears(2, machine.wall_ms + YEAR_MS)
    assert machine.believes
    assert machine.skews_ms == {2: YEAR_MS}


def test_old_reports_and_brokers_that_do_not_report_raise_no_doubt() -> None:
    machine = Machine()
    machine.hears(2, machine.wall_ms - YEAR_MS)
    machine.hears(3, 0)
    assert list(machine.check.peers) == [2]
    machine.passes(PEER_VALID_MS + 1)
    assert machine.believes
    assert machine.skews_ms == {}


def test_a_clock_that_differs_is_checked_when_its_report_arrives() -> None:
    machine = Machine()
    machine.fetched_by(2, machine.wall_ms - YEAR_MS)
    assert machine.check.doubt is not None
    machine.passes(PEER_VALID_MS + 1)
    assert not machine.believes


def ahead_since_its_start() -> Machine:
    """The other brokers have reported it, and then fall silent."""
    machine = Machine(wall_ms=NOW_MS + HOUR_MS)
    for broker_id in (2, 3):
        machine.fetched_by(broker_id, NOW_MS)
    machine.passes(10 * PEER_VALID_MS)
    assert machine.skews_ms == {}
    assert not machine.believes
    return machine


def test_a_doubt_does_not_end_because_the_others_fall_silent() -> None:
    machine = ahead_since_its_start()
    assert machine.reported == ["it is ahead of 1 of the 1 other brokers whose clocks are known"]
    machine.passes(MAX_DOUBT_MS - 10 * PEER_VALID_MS)
    assert not machine.believes
    machine.passes(1)
    assert machine.believes
    assert machine.reported[1:] == ["nothing contradicts the clock any more"]


def test_a_doubt_ends_once_both_clocks_agree() -> None:
    machine = ahead_since_its_start()
    machine.fetched_by(2, machine.wall_ms)
    assert not machine.believes
    machine.fetched_by(3, machine.wall_ms)
    assert machine.believes
    assert machine.reported[1:] == ["2 other brokers have the same time"]
    machine = ahead_since_its_start()
    machine.wall_ms -= HOUR_MS
    assert machine.believes
    # The time that was trusted before does not count any more.
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


def test_a_jump_is_still_doubted_after_a_reboot_of_a_lone_broker() -> None:
    machine = Machine()
    machine.wall_ms += HOUR_MS
    assert not machine.believes
    machine = machine.restarted(is_rebooted=True)
    assert not machine.believes
    machine.wall_ms -= HOUR_MS
    assert machine.believes


def test_a_clock_that_other_brokers_contradict_is_never_trusted() -> None:
    """A clock that jumped ahead would delete everything older than its jump."""
    machine = Machine()
    for _ in range(10 * 24):
        machine.fetched_by(2, machine.wall_ms - YEAR_MS)
        machine.passes(HOUR_MS)
        assert not machine.believes
    assert len(machine.reported) == 1
    # The last report of the other broker counts for a day.
    machine.passes(MAX_DOUBT_MS - HOUR_MS)
    assert not machine.believes
    machine.passes(1)
    assert machine.believes


@pytest.mark.parametrize("is_rebooted", [False, True])
def test_a_contradicted_clock_is_trusted_by_no_later_process(is_rebooted: bool) -> None:
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
    assert machine.reported[-1] == "no other broker has contradicted it for a day"


@pytest.mark.parametrize(
    ("last", "believes"),
    [
        (None, True),
        (Reading(NOW_MS - 4_000, 1_000, "boot"), True),
        (Reading(NOW_MS - YEAR_MS, 1_000, "boot"), False),
        (Reading(NOW_MS - MAX_STEP_MS, 9_000_000, "boot before"), True),
        (Reading(NOW_MS - MAX_STEP_MS - 1, 9_000_000, "boot before"), False),
        (Reading(NOW_MS - MAX_OFF_MS - MAX_STEP_MS - 1, 9_000_000, "boot before"), False),
        (Reading(NOW_MS + YEAR_MS, 9_000_000, "boot before"), True),
    ],
)
def test_a_new_process_compares_with_the_stored_time_of_the_last_one(
    last: Reading | None, believes: bool
) -> None:
    assert Machine(last).believes is believes


def rebooted(off_ms: int, hardware_ahead_ms: int = 0) -> Machine:
    """A lone broker whose machine was off, and whose hardware clock is ahead."""
    wall_ms = NOW_MS + off_ms + hardware_ahead_ms
    return Machine(Reading(NOW_MS, 9_000_000, "boot before"), wall_ms=wall_ms)


@pytest.mark.parametrize("off_ms", [1_000, HOUR_MS])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_hardware_clock_in_local_time_deletes_nothing_until_it_is_corrected(
    off_ms: int, is_restarted: bool
) -> None:
    machine = rebooted(off_ms, 14 * HOUR_MS)
    assert not machine.believes
    machine.passes(MAX_REBOOT_DOUBT_MS // 2)
    if is_restarted:
        machine = machine.restarted(is_rebooted=False)
    assert not machine.believes
    machine.wall_ms -= 14 * HOUR_MS
    machine.passes(MAX_REBOOT_DOUBT_MS // 2)
    assert machine.believes
    assert machine.retention_ms == machine.steady_ms == machine.wall_ms


@pytest.mark.parametrize("restarts", [[], [False], [True], [False, True]])
def test_a_lone_broker_trusts_its_clock_10_minutes_after_a_reboot(restarts: list[bool]) -> None:
    machine = rebooted(MAX_OFF_MS - 2_000)
    for is_rebooted in restarts:
        machine = machine.restarted(is_rebooted=is_rebooted)
        assert not machine.believes
    assert not machine.believes
    assert machine.reported == ["after a reboot of its machine it is ahead of the last known time"]
    machine.passes(MAX_REBOOT_DOUBT_MS - 10)
    assert not machine.believes
    machine.passes(10)
    assert machine.believes
    # A later jump is no matter of that reboot.
    machine.wall_ms += HOUR_MS
    machine.passes(MAX_REBOOT_DOUBT_MS)
    assert not machine.believes


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_hardware_clock_that_was_behind_is_trusted_10_minutes_after_its_correction(
    is_restarted: bool,
) -> None:
    """A clock without a battery begins at a fixed date."""
    machine = rebooted(HOUR_MS, -YEAR_MS)
    assert machine.believes
    machine.passes(5_000)
    assert machine.believes
    if is_restarted:
        machine = machine.restarted(is_rebooted=False)
        assert machine.believes
    machine.wall_ms += YEAR_MS
    assert not machine.believes
    machine.passes(MAX_REBOOT_DOUBT_MS - 1)
    assert not machine.believes
    machine.passes(1)
    assert machine.believes


def test_a_clock_that_jumps_long_after_a_reboot_is_doubted_for_a_day() -> None:
    machine = rebooted(HOUR_MS, -YEAR_MS)
    assert machine.believes
    machine.passes(MAX_REBOOT_DOUBT_MS)
    assert machine.believes
    machine.wall_ms += YEAR_MS
    assert not machine.believes
    machine.passes(MAX_DOUBT_MS - 1)
    assert not machine.believes


def test_another_broker_confirms_or_contradicts_a_clock_after_a_reboot_at_once() -> None:
    machine = rebooted(HOUR_MS)
    machine.fetched_by(2, machine.wall_ms)
    assert machine.believes
    assert machine.reported == []
    machine = rebooted(HOUR_MS, 14 * HOUR_MS)
    machine.fetched_by(2, NOW_MS + HOUR_MS)
    machine.passes(MAX_REBOOT_DOUBT_MS)
    assert not machine.believes


def test_a_clock_that_is_more_than_a_day_ahead_after_a_reboot_is_doubted_for_a_day() -> None:
    machine = rebooted(MAX_OFF_MS + 1)
    assert not machine.believes
    machine.passes(MAX_DOUBT_MS - 1)
    assert not machine.believes
    machine.passes(1)
    assert machine.believes


def test_the_stored_time_is_the_trusted_time() -> None:
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
    left = left._replace(peers=((2, PeerClock(NOW_MS, 6_500)),), is_rebooted=True)
    write_clock(disk, DIRECTORY, left)
    assert read_clock(disk, DIRECTORY) == left
    # The format of earlier releases.
    previous = b'{"wall_ms": 1, "monotonic_ms": 2, "boot_id": "boot"}'
    disk.write_atomically(DIRECTORY / CLOCK_NAME, previous, sync=False)
    assert read_clock(disk, DIRECTORY) == Reading(1, 2, "boot")
    disk.write_atomically(DIRECTORY / CLOCK_NAME, b"{", sync=False)
    assert read_clock(disk, DIRECTORY) is None


@pytest.mark.parametrize("is_rebooted", [False, True])
def test_a_doubt_lasts_a_day_however_often_the_broker_is_restarted(is_rebooted: bool) -> None:
    run_ms, off_ms = MAX_DOUBT_MS // 4, MAX_STEP_MS
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
    machine.wall_ms -= YEAR_MS  # the clock is corrected
    assert machine.believes
    assert machine.left().doubted_ms == 0
    # A process that finds the clock right starts from no later time.
    machine = Machine(Reading(NOW_MS - 4_000, 1_000, "boot", MAX_DOUBT_MS - 1))
    assert machine.believes
    machine.wall_ms += YEAR_MS
    assert not machine.believes
    machine.passes(MAX_DOUBT_MS - 1)
    assert not machine.believes
