"""What a loss mark excuses, and what none does."""

from __future__ import annotations

import pytest

from tidelog.history import OPEN_END, Anomaly, LossMark, Outcome
from tidelog.history.loss_marks import LossMarks
from unit.history.recording import TOPIC, Recording


@pytest.fixture
def history() -> Recording:
    return Recording()


def test_marked_loss_is_excused_in_its_epochs_and_offsets_alone(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=2)
    history.lost(1, 1, first_offset=1)
    history.drained([])
    report = history.report()
    assert dict(report.findings.counts) == {Anomaly.UNSEEN: 2}
    assert dict(report.findings.excused) == {Anomaly.UNSEEN: 1}
    excused = report.findings.of(Anomaly.UNSEEN)[-1]
    assert (excused.excuse, excused.references[0].line) == ("unclean election", 4)


@pytest.mark.parametrize(("first_offset", "excused"), [(0, 1), (1, 0)])
def test_what_has_no_offset_is_excused_by_a_mark_over_all_offsets_alone(
    history: Recording, first_offset: int, excused: int
) -> None:
    history.invoke(1)
    history.end(1, Outcome.OK, epoch=1)
    history.lost(1, 1, first_offset)
    history.drained([])
    assert history.report().excused_count == excused


@pytest.mark.parametrize(("first_offset", "excused"), [(4, 1), (5, 0)])
def test_a_high_watermark_goes_back_with_the_last_record_below_it(
    history: Recording, first_offset: int, excused: int
) -> None:
    history.saw_high_watermark(5, epoch=1)
    history.lost(1, 1, first_offset)
    history.saw_high_watermark(4, epoch=2)
    assert history.report().excused_count == excused


def test_all_that_follows_from_marked_loss_is_excused(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.polled([(0, 1), (1, 2)], epoch=1, high_watermark=2)
    history.invoke(4)
    history.lost(1, 1)
    # The first two are gone; the second is sent again, by a retry.
    history.polled([(0, 4), (1, 5)], epoch=2, repositioned=True, high_watermark=1)
    history.polled([(2, 2)], epoch=2)
    history.sent(5, 1, epoch=2, client="p2")
    history.sent(6, 0, epoch=2, client="p1")
    report = history.report()
    assert dict(report.findings.excused) == {
        Anomaly.INCONSISTENT_OFFSETS: 1,
        Anomaly.DUPLICATE: 1,
        Anomaly.NON_MONOTONIC_SEND: 1,
        Anomaly.HW_REGRESSION: 1,
    }
    # 4 and 6 are both of epoch 2, which nobody gave up.
    assert dict(report.findings.counts) == {
        Anomaly.INCONSISTENT_OFFSETS: 1,
        Anomaly.LOST_WRITE: 1,
    }


def test_who_read_what_was_given_up_has_not_read_past_what_came_in_its_place(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.polled([(0, 1), (1, 2)], epoch=1)
    history.lost(1, 1)
    history.sent(3, 0, epoch=2)
    assert history.found() == {}


def test_what_came_in_the_place_of_a_loss_is_lost_where_somebody_read_past_it(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.polled([(0, 1)], epoch=1)
    history.lost(1, 1)
    history.sent(2, 0, epoch=2)
    history.sent(3, 1, epoch=2)
    history.polled([(1, 3)], client="c2", epoch=2)
    assert history.found() == {Anomaly.LOST_WRITE: 1}


def test_what_came_in_the_place_of_a_loss_is_unseen_where_the_drain_does_not_show_it(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.polled([(0, 1)], epoch=1)
    history.lost(1, 1)
    history.sent(2, 0, epoch=2)
    history.drained([])
    assert history.found() == {Anomaly.UNSEEN: 1}


def test_who_read_beyond_a_loss_has_read_past_what_was_not_given_up(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=1)
    history.polled([(1, 2), (2, 3)], epoch=1)
    history.lost(1, 1, first_offset=1)
    assert history.found() == {Anomaly.LOST_WRITE: 1}


def test_who_read_up_to_a_loss_has_read_past_all_of_later_epochs(history: Recording) -> None:
    history.sent(1, 1, epoch=1)
    history.sent(2, 2, epoch=1)
    history.polled([(1, 1), (2, 2)], epoch=1)
    history.lost(1, 1, first_offset=2)
    history.sent(3, 0, epoch=2)
    assert history.found() == {Anomaly.LOST_WRITE: 1}


def test_a_poll_over_several_epochs_reads_past_what_came_in_the_place_of_a_loss(
    history: Recording,
) -> None:
    history.sent(1, 1, epoch=1)
    history.sent(2, 2, epoch=3)
    history.polled([(1, 1), (2, 2)], epochs=[1, 3])
    history.lost(1, 1)
    history.sent(3, 0, client="p2", epoch=3)
    assert history.found() == {Anomaly.LOST_WRITE: 1}


def test_what_was_given_up_is_skipped_by_nobody_who_read_a_later_log(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.lost(1, 1, first_offset=1)
    history.sent(3, 2, epoch=2)
    history.polled([(0, 1), (2, 3)], epochs=[1, 2])
    assert history.found() == {}


def test_what_came_in_the_place_of_a_loss_is_skipped_by_nobody_who_read_what_was_given_up(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 2, epoch=1)
    history.polled([(0, 1), (2, 2)], epoch=1)
    history.lost(1, 1, first_offset=1)
    history.sent(3, 1, epoch=2)
    assert history.found() == {}


def test_what_was_given_up_is_skipped_by_who_read_on_in_what_was_given_up(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=1)
    history.polled([(0, 1), (1, 2), (2, 3)], client="c2", epoch=1)
    history.polled([(0, 1), (2, 3)], epoch=1)
    history.lost(1, 1, first_offset=1)
    assert history.found() == {Anomaly.INTERNAL_SKIP: 1}


def test_what_a_loss_brought_back_is_skipped_by_nobody_who_read_what_it_gave_up(
    history: Recording,
) -> None:
    """Two leaders before it had written there; who leads after it has the log of the first."""
    history.sent(1, 0, epoch=1)
    history.sent(2, 2, epoch=2)
    history.invoke(3)
    history.polled([(0, 1), (2, 2)], epochs=[1, 2])
    history.lost(0, 2, first_offset=1)
    history.polled([(1, 3)], client="c2", epoch=1, repositioned=True)
    assert history.found() == {}


def test_what_became_unreadable_later_is_skipped_by_nobody_who_was_told(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=1)
    history.polled([(0, 1), (1, 2), (2, 3)], client="c2", epoch=1)
    history.polled([(0, 1), (2, 3)], epoch=1)
    history.lost(0, 9, first_offset=1, end_offset=2)
    assert history.found() == {}
    # Nor where an election gives up what comes next.
    history.lost(1, 1, first_offset=2)
    assert history.found() == {}


def test_what_became_unreadable_in_part_is_skipped_no_further(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=1)
    history.sent(4, 3, epoch=1)
    history.polled([(0, 1), (3, 4)], epoch=1)
    history.lost(0, 9, first_offset=1, end_offset=2)
    assert history.found() != {}


def test_no_loss_above_or_below_it_explains_a_skip(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=2)
    history.polled([(0, 1), (2, 3)], epochs=[1, 2])
    history.lost(1, 1, first_offset=2)
    history.polled([(1, 2)], client="c2", repositioned=True)
    assert history.found() == {Anomaly.INTERNAL_SKIP: 1}


@pytest.mark.parametrize(
    ("ranges", "kept"),
    [
        ([], 9),
        ([(10, OPEN_END)], 9),
        ([(7, OPEN_END)], 6),
        ([(0, 9)], 9),
        ([(0, 10)], None),
        ([(4, 7), (7, OPEN_END)], 3),
        ([(3, OPEN_END)], None),
    ],
)
def test_the_highest_that_was_kept_lies_below_every_mark_that_reaches_the_end(
    ranges: list[tuple[int, int]], kept: int | None
) -> None:
    marks = LossMarks()
    for first, end in ranges:
        marks.add(LossMark(0, TOPIC, 0, "unclean election", 1, 1, first, end))
    assert marks.highest_kept(1, lowest=3, highest=9) == kept
    assert marks.highest_kept(2, lowest=3, highest=9) == 9


def test_no_mark_excuses_a_fork(history: Recording) -> None:
    history.lost(0, 9)
    history.digest(1, "aa")
    history.digest(2, "bb")
    history.sent(1, 0, broker=1)
    history.sent(2, 1, broker=2)
    assert history.found() == {Anomaly.REPLICA_DIVERGENCE: 1, Anomaly.TWO_LEADERS: 1}
