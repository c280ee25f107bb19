"""Gaps and delays, which are reported without a verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.history import NO_PARTITION, Outcome, Report
from tidelog.history.write_gaps import (
    NO_GAP,
    Window,
    WriteGap,
    longest_gap,
    longest_gap_around,
    longest_gaps,
)
from unit.history.recording import STEP_MS, Recording

TIMES = [0, 10, 40, 50, 100, 105]


def test_the_longest_gap() -> None:
    assert longest_gap(TIMES) == WriteGap(50, 100)
    assert longest_gap([5]) == NO_GAP


@pytest.mark.parametrize(
    ("event", "following", "gap"),
    [
        (12, None, WriteGap(50, 100)),
        (12, 45, WriteGap(10, 40)),
        (12, 12, WriteGap(10, 40)),
        (12, 55, WriteGap(50, 100)),
        (60, 70, WriteGap(50, 100)),
        (101, None, WriteGap(100, 105)),
        (500, None, NO_GAP),
    ],
)
def test_gaps_around_an_event_end_where_the_next_begins(
    event: int, following: int | None, gap: WriteGap
) -> None:
    assert longest_gap_around(TIMES, event, following) == gap


MOMENTS = st.integers(0, 50)
WINDOWS = st.lists(st.builds(Window, MOMENTS, st.none() | MOMENTS), max_size=6)


@given(st.sets(MOMENTS, max_size=20).map(sorted), WINDOWS)
def test_gaps_of_unstored_times_are_the_same(times: list[int], windows: list[Window]) -> None:
    longest, around = longest_gaps(iter(times), windows)
    assert longest == longest_gap(times)
    assert around == [longest_gap_around(times, *window) for window in windows]


def recorded() -> Report:
    """Sends at 10 and 30, then none until 90, while broker 2 is down and one attempt fails. The
    record of the second is polled 20 ms later."""
    history = Recording()
    history.sent(1, 0)
    history.sent(2, 0, partition=1)
    history.nemesis("kill", "broker 2")
    history.polled([(0, 2)], partition=1)
    history.nemesis("heal")
    history.invoke(3)
    history.sent(4, 1)
    history.end(3, Outcome.FAIL)
    history.drained([(0, 1), (1, 4)])
    return history.report()


def test_the_longest_time_without_a_successful_send() -> None:
    report = recorded()
    assert report.longest_write_gap() == WriteGap(3 * STEP_MS, 9 * STEP_MS)
    kill, heal = report.gaps_around_events()
    assert (kill.line, kill.event.event, kill.event.detail) == (5, "kill", "broker 2")
    assert kill.overall == heal.overall == WriteGap(3 * STEP_MS, 9 * STEP_MS)
    assert (kill.worst, str(kill.worst_partition)) == (WriteGap(1 * STEP_MS, 9 * STEP_MS), "sea/0")


def test_sending_that_ends_in_failure_is_a_gap() -> None:
    history = Recording()
    history.invoke(1, partition=NO_PARTITION)
    history.nemesis("cut", "1")
    history.nemesis("heal")
    history.end(1, Outcome.FAIL, partition=NO_PARTITION)
    assert history.report().longest_write_gap() == WriteGap(0, 3 * STEP_MS)


def test_the_slowest_record_to_be_seen() -> None:
    report = recorded()
    assert report.slowest is not None
    assert report.slowest.waited_ms == 2 * STEP_MS
    assert report.slowest[1:] == ("sea", 1, 2, 0, 4, 6)
    assert report.only_in_final_reads == 2


def test_a_record_polled_before_its_acknowledgement_has_no_delay() -> None:
    history = Recording()
    history.invoke(1)
    history.polled([(0, 1)])
    history.end(1, Outcome.OK, 0)
    report = history.report()
    assert report.slowest is not None
    assert report.slowest.waited_ms == 0


def test_an_empty_history_has_no_gaps() -> None:
    report = Recording().report()
    assert report.longest_write_gap() == NO_GAP
    assert report.gaps_around_events() == []
