"""An open-loop load, whose latencies include every wait."""

import pytest

from bench.open_loop import Latencies, Schedule


def test_requests_are_due_at_a_fixed_rate() -> None:
    schedule = Schedule(4, 10.0)

    assert list(schedule.due(10.5)) == [10.0, 10.25, 10.5]
    assert schedule.next_s == 10.75
    assert list(schedule.due(10.6)) == []


def test_a_late_sender_gets_all_due_requests_with_their_due_times() -> None:
    schedule = Schedule(2, 0.0)
    list(schedule.due(0.0))

    assert list(schedule.due(2.0)) == [0.5, 1.0, 1.5, 2.0]


def test_times_do_not_drift() -> None:
    schedule = Schedule(3, 0.0)

    for due_s in schedule.due(1000.0):
        last_s = due_s
    assert last_s == 1000.0


def test_a_rate_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Schedule(0, 0.0)


def test_a_stall_is_charged_to_every_request_that_was_due_in_it() -> None:
    latencies = Latencies()
    # Sending stalled for a second, so each request waits from its due time.
    for due_s in Schedule(4, 0.0).due(0.75):
        latencies.note(due_s, 1.0)

    assert latencies.within(0.0, 1.0) == [250.0, 500.0, 750.0, 1000.0]


def test_requests_are_attributed_to_their_due_time() -> None:
    latencies = Latencies()
    latencies.note(0.9, 5.0)
    latencies.note(1.0, 1.5)
    latencies.note(2.0, 2.1)

    assert latencies.within(1.0, 2.0) == [500.0]


def test_failures_are_counted_separately() -> None:
    latencies = Latencies()
    latencies.note(0.0, 1.0)
    latencies.note_failure(0.5)

    assert latencies.failed == 1
    assert latencies.within(0.0, 1.0) == [1000.0]
