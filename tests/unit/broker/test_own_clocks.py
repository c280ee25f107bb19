"""How a broker dates appends while its wall clock differs from monotonic time or from other
brokers.
"""

from __future__ import annotations

import pytest

from tidelog_broker.clock_check import (
    MAX_DOUBT_MS,
    MAX_OFF_MS,
    MAX_STEP_MS,
    PEER_VALID_MS,
    Reading,
)
from tidelog_runtime.clock import MAX_SKEW_MS
from unit.broker.machine_clocks import HOUR_MS, NOW_MS, YEAR_MS, Machine


@pytest.mark.parametrize("jump_ms", [MAX_STEP_MS + 1, -MAX_STEP_MS - 1, YEAR_MS, -NOW_MS])
def test_a_steady_clock_follows_no_jump(jump_ms: int) -> None:
    machine = Machine()
    machine.wall_ms += jump_ms
    for _ in range(2):
        machine.passes(1_000)
        _ = machine.believes
    assert machine.steady_ms == NOW_MS + 2_000
    machine.wall_ms -= jump_ms
    assert machine.steady_ms == machine.wall_ms


@pytest.mark.parametrize("step_ms", [MAX_STEP_MS, -MAX_STEP_MS])
def test_a_steady_clock_follows_a_step_of_a_time_server(step_ms: int) -> None:
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


def test_a_new_process_continues_from_the_last_time_when_the_clock_is_behind_it() -> None:
    machine = Machine(Reading(NOW_MS + YEAR_MS, 9_000_000, "boot before"))
    machine.passes(1_000)
    assert machine.steady_ms == NOW_MS + YEAR_MS + 1_000


def test_appends_are_never_dated_back_and_a_clock_after_a_long_pause_dates_them_right() -> None:
    """A machine that was switched off or suspended for two days has a right clock that is in
    doubt. Producers, whose clocks are right, must not be ahead of the dates of appends.
    """
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
        # This clock and one other agree: the records get its own time.
        ({2: HOUR_MS}, 0, HOUR_MS),
        ({2: -HOUR_MS}, 0, 0),
        ({2: MAX_SKEW_MS}, 0, 0),
        # This clock is behind most.
        ({2: HOUR_MS, 3: HOUR_MS + 5}, HOUR_MS, HOUR_MS),
        ({2: HOUR_MS, 3: YEAR_MS}, HOUR_MS, HOUR_MS),
        ({2: HOUR_MS, 3: HOUR_MS, 4: HOUR_MS, 5: 0}, HOUR_MS, HOUR_MS),
        # One wrong clock among three moves no right one.
        ({2: YEAR_MS, 3: 0}, 0, 0),
        ({2: YEAR_MS, 3: -YEAR_MS}, 0, 0),
        ({2: YEAR_MS, 3: YEAR_MS, 4: 0, 5: 0}, 0, 0),
        # As many clocks agree as disagree.
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
        # No other clock deletes anything.
        assert machine.retention_ms == machine.wall_ms
        # The other brokers fall silent.
        machine.passes(10 * PEER_VALID_MS)
    machine = machine.restarted(is_rebooted=False)
    assert machine.append_ms - machine.wall_ms == append_ms
    machine.passes(MAX_DOUBT_MS)
    assert machine.append_ms == machine.wall_ms


def test_a_clock_that_was_behind_counts_at_once_after_its_correction() -> None:
    machine = Machine()
    for broker_id in (2, 3):
        machine.fetched_by(broker_id, machine.wall_ms + HOUR_MS)
    machine.wall_ms += HOUR_MS
    assert machine.append_ms == machine.latest_ms == machine.wall_ms
    assert machine.believes


def test_after_a_jump_back_ages_continue_where_another_broker_has_that_time() -> None:
    machine = Machine()
    machine.wall_ms -= YEAR_MS
    assert machine.retention_ms == machine.wall_ms
    machine.fetched_by(2, NOW_MS)
    assert machine.retention_ms == machine.steady_ms == NOW_MS


def test_only_a_clock_that_is_off_needs_another_check_of_the_others() -> None:
    machine = Machine()
    assert machine.check.is_steady(machine.wall_ms, machine.monotonic_ms)
    for off_ms in (MAX_STEP_MS + 1, -MAX_STEP_MS - 1):
        assert not machine.check.is_steady(machine.wall_ms + off_ms, machine.monotonic_ms)
