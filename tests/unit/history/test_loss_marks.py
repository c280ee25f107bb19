"""What a loss mark excuses, and what none does."""

from __future__ import annotations

import pytest

from tidelog.history import Anomaly, Outcome
from unit.history.recording import Recording


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


def test_no_mark_excuses_a_fork(history: Recording) -> None:
    history.lost(0, 9)
    history.digest(1, "aa")
    history.digest(2, "bb")
    history.sent(1, 0, broker=1)
    history.sent(2, 1, broker=2)
    assert history.found() == {Anomaly.REPLICA_DIVERGENCE: 1, Anomaly.TWO_LEADERS: 1}
