"""A contradictory history is rejected, because no verdict on it could be trusted."""

from __future__ import annotations

import pytest

from tidelog.history import HistoryError, Outcome
from unit.history.recording import Recording


@pytest.fixture
def history() -> Recording:
    return Recording()


def test_a_value_sent_twice_is_rejected(history: Recording) -> None:
    history.sent(1, 0)
    history.invoke(1)
    with pytest.raises(HistoryError, match="line 3: value 1 is sent a second time"):
        history.report()


def test_an_end_without_its_invocation_is_rejected(history: Recording) -> None:
    history.end(1, Outcome.OK, 0)
    with pytest.raises(HistoryError, match="line 1: the send of value 1 was not invoked"):
        history.report()


def test_a_send_that_ends_twice_is_rejected(history: Recording) -> None:
    history.sent(1, 0)
    history.end(1, Outcome.INFO)
    with pytest.raises(HistoryError, match="line 3: the send of value 1 ends a second time"):
        history.report()


def test_a_send_with_a_foreign_completion_is_rejected(history: Recording) -> None:
    history.invoke(1, partition=2)
    history.end(1, Outcome.OK, 0, partition=3)
    with pytest.raises(HistoryError, match="invoked in line 1 by p1 to sea/2"):
        history.report()


def test_a_reading_that_was_not_invoked_is_rejected(history: Recording) -> None:
    history.sent_high_watermark(3)
    with pytest.raises(HistoryError, match="line 1: a reading of the high watermark of sea/0"):
        history.report()
