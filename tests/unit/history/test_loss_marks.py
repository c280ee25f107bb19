"""What a loss mark excuses, and what it does not."""

from __future__ import annotations

import pytest

from tidelog.history import OPEN_END, Anomaly, LossMark, Outcome
from tidelog.history.loss_marks import LossMarks
from unit.history.recording import TOPIC, Recording


@pytest.fixture
def history() -> Recording:
    return Recording()


def test_marked_loss_is_excused_only_in_its_epochs_and_offsets(history: Recording) -> None:
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
def test_a_record_without_an_offset_is_excused_only_by_a_mark_over_all_offsets(
    history: Recording, first_offset: int, excused: int
) -> None:
    history.invoke(1)
    history.end(1, Outcome.OK, epoch=1)
    history.lost(1, 1, first_offset)
    history.drained([])
    assert history.report().excused_count == excused


@pytest.mark.parametrize(("first_offset", "excused"), [(4, 1), (5, 0)])
def test_a_high_watermark_may_fall_with_the_last_record_below_it(
    history: Recording, first_offset: int, excused: int
) -> None:
    history.saw_high_watermark(5, epoch=1)
    history.lost(1, 1, first_offset)
    history.saw_high_watermark(4, epoch=2)
    assert history.report().excused_count == excused


def test_all_consequences_of_marked_loss_are_excused(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.polled([(0, 1), (1, 2)], epoch=1, high_watermark=2)
    history.invoke(4)
    history.lost(1, 1)
    # The first two are lost; the second is sent again by a retry.
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
    # Offsets 4 and 6 are both of epoch 2, which was not given up.
    assert dict(report.findings.counts) == {
        Anomaly.INCONSISTENT_OFFSETS: 1,
        Anomaly.LOST_WRITE: 1,
    }


def test_reading_a_given_up_record_is_not_reading_past_its_replacement(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.polled([(0, 1), (1, 2)], epoch=1)
    history.lost(1, 1)
    history.sent(3, 0, epoch=2)
    assert history.found() == {}


def test_a_replacement_record_that_a_client_read_past_is_lost(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.polled([(0, 1)], epoch=1)
    history.lost(1, 1)
    history.sent(2, 0, epoch=2)
    history.sent(3, 1, epoch=2)
    history.polled([(1, 3)], client="c2", epoch=2)
    assert history.found() == {Anomaly.LOST_WRITE: 1}


def test_a_replacement_record_missing_from_the_drain_is_unseen(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.polled([(0, 1)], epoch=1)
    history.lost(1, 1)
    history.sent(2, 0, epoch=2)
    history.drained([])
    assert history.found() == {Anomaly.UNSEEN: 1}


def test_reading_beyond_a_loss_reads_past_records_that_were_kept(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=1)
    history.polled([(1, 2), (2, 3)], epoch=1)
    history.lost(1, 1, first_offset=1)
    assert history.found() == {Anomaly.LOST_WRITE: 1}


def test_reading_up_to_a_loss_reads_past_all_records_of_later_epochs(history: Recording) -> None:
    history.sent(1, 1, epoch=1)
    history.sent(2, 2, epoch=1)
    history.polled([(1, 1), (2, 2)], epoch=1)
    history.lost(1, 1, first_offset=2)
    history.sent(3, 0, epoch=2)
    assert history.found() == {Anomaly.LOST_WRITE: 1}


def test_a_poll_over_several_epochs_reads_past_replacement_records(
    history: Recording,
) -> None:
    history.sent(1, 1, epoch=1)
    history.sent(2, 2, epoch=3)
    history.polled([(1, 1), (2, 2)], epochs=[1, 3])
    history.lost(1, 1)
    history.sent(3, 0, client="p2", epoch=3)
    assert history.found() == {Anomaly.LOST_WRITE: 1}


def test_given_up_records_are_not_skipped_by_a_reader_of_a_later_log(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.lost(1, 1, first_offset=1)
    history.sent(3, 2, epoch=2)
    history.polled([(0, 1), (2, 3)], epochs=[1, 2])
    assert history.found() == {}


def test_replacement_records_are_not_skipped_by_a_reader_of_given_up_ones(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 2, epoch=1)
    history.polled([(0, 1), (2, 2)], epoch=1)
    history.lost(1, 1, first_offset=1)
    history.sent(3, 1, epoch=2)
    assert history.found() == {}


def test_given_up_records_are_skipped_by_a_reader_of_later_given_up_ones(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=1)
    history.polled([(0, 1), (1, 2), (2, 3)], client="c2", epoch=1)
    history.polled([(0, 1), (2, 3)], epoch=1)
    history.lost(1, 1, first_offset=1)
    assert history.found() == {Anomaly.INTERNAL_SKIP: 1}


def test_records_restored_by_a_loss_are_not_skipped_by_a_reader_of_the_given_up_ones(
    history: Recording,
) -> None:
    """Two earlier leaders had written there; the leader after the election has the log of the
    first."""
    history.sent(1, 0, epoch=1)
    history.sent(2, 2, epoch=2)
    history.invoke(3)
    history.polled([(0, 1), (2, 2)], epochs=[1, 2])
    history.lost(0, 2, first_offset=1)
    history.polled([(1, 3)], client="c2", epoch=1, repositioned=True)
    assert history.found() == {}


def test_records_that_became_unreadable_are_not_skipped_by_informed_readers(
    history: Recording,
) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=1)
    history.polled([(0, 1), (1, 2), (2, 3)], client="c2", epoch=1)
    history.polled([(0, 1), (2, 3)], epoch=1)
    history.lost(0, 9, first_offset=1, end_offset=2)
    assert history.found() == {}
    # Nor is it skipped where an election gives up the next record.
    history.lost(1, 1, first_offset=2)
    assert history.found() == {}


def test_a_partly_unreadable_range_excuses_no_further_skip(history: Recording) -> None:
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.sent(3, 2, epoch=1)
    history.sent(4, 3, epoch=1)
    history.polled([(0, 1), (3, 4)], epoch=1)
    history.lost(0, 9, first_offset=1, end_offset=2)
    assert history.found() != {}


def test_a_loss_above_or_below_explains_no_skip(history: Recording) -> None:
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
def test_the_highest_kept_offset_is_below_every_mark_that_reaches_the_end(
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
