"""Gaps without a successful write, and the faults that they are attributed to."""

from faults.gaps import NOWHERE, Window, gap_in, ordinary, worst_in
from tidelog.history.write_gaps import NO_GAP, WriteGap
from tidelog.model import TopicPartition

CALM, ROUGH = TopicPartition("sea", 0), TopicPartition("sea", 1)


def test_a_gap_that_began_before_its_fault_counts_in_full() -> None:
    assert gap_in([0, 90, 400, 410], Window(100, 200), 1_000) == WriteGap(90, 400)


def test_a_gap_that_begins_within_the_window_counts_in_full() -> None:
    assert gap_in([0, 100, 190, 900], Window(100, 200), 1_000) == WriteGap(190, 900)


def test_a_gap_outside_the_window_does_not_count() -> None:
    assert gap_in([0, 500, 510, 520, 2_000], Window(505, 515), 3_000) == WriteGap(500, 510)


def test_an_unrecovered_partition_has_a_gap_until_the_load_ends() -> None:
    assert gap_in([0, 100], Window(150, 300), 5_000) == WriteGap(100, 5_000)


def test_successes_only_after_the_window_say_nothing_about_it() -> None:
    assert gap_in([400, 900], Window(100, 200), 1_000) == NO_GAP


def test_without_any_success_there_is_no_gap() -> None:
    assert gap_in([], Window(100, 200), 1_000) == NO_GAP


def test_the_worst_partition_counts() -> None:
    successes = {CALM: [0, 100, 200, 300], ROUGH: [0, 100, 280, 300]}

    assert worst_in(successes, Window(90, 210), 300) == (WriteGap(100, 280), ROUGH)


def test_quiet_time_excludes_all_windows() -> None:
    successes = {CALM: [0, 50, 120, 1_000, 1_040, 1_130, 1_200]}

    worst = ordinary(successes, [Window(100, 1_010)], Window(0, 1_200))

    assert worst == (WriteGap(1_040, 1_130), CALM)


def test_overlapping_windows_leave_no_quiet_time_between_them() -> None:
    successes = {CALM: [0, 10, 400, 900, 1_000]}

    worst = ordinary(successes, [Window(5, 500), Window(450, 950)], Window(0, 1_000))

    assert worst == NOWHERE


def test_gaps_are_clipped_to_the_requested_time() -> None:
    assert gap_in([0, 100, 900], Window(0, 400), until_ms=400) == WriteGap(100, 400)
    assert gap_in([0, 100, 900], Window(0, 400), until_ms=2_000) == WriteGap(100, 900)
