"""A check in parts gives the same result as a check of the whole history."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.history import (
    NO_PARTITION,
    HighWatermarkEnded,
    HistoryError,
    Operation,
    Outcome,
    SendEnded,
    SendInvoked,
    check_history,
)
from tidelog.history.report_document import document
from tidelog.model import NO_OFFSET
from unit.history.defects import DEFECTS, Defect
from unit.history.log_model import LogModel, Step
from unit.history.recording import TOPIC, Recording
from unit.history.test_random_histories import LAST, RICH, STEPS
from unit.pipeline import stages_in_order

DEFECTS_OF_ONE = st.lists(
    st.tuples(st.sampled_from(DEFECTS), st.integers(0, 1 << 20)), min_size=1, max_size=3
)


def unsplit(operations: list[Operation]) -> dict[str, object]:
    report = check_history(enumerate(operations, 1))
    return document(report, report.write_timing())


def in_parts(operations: list[Operation], tasks: int = 2) -> dict[str, object]:
    return document(*stages_in_order.check(operations, tasks))


def with_defects(history: list[Operation], defects: list[tuple[Defect, int]]) -> list[Operation]:
    for defect, choice in defects:
        planted = list(defect.plant(history))
        if planted:
            history = planted[choice % len(planted)]
    return history


def verdict_or_error(check: object, operations: list[Operation]) -> object:
    try:
        return check(operations)  # type: ignore[operator]
    except HistoryError as error:
        return str(error)


@pytest.mark.rule("check-uses-rules-of-one-machine")
@settings(max_examples=150, deadline=None)
@given(STEPS, STEPS, DEFECTS_OF_ONE)
def test_the_staged_check_finds_the_planted_anomalies_of_random_histories(
    before: list[Step], after: list[Step], defects: list[tuple[Defect, int]]
) -> None:
    history = with_defects(LogModel().run([*before, *RICH, *after, *LAST]).operations, defects)
    assert verdict_or_error(in_parts, history) == verdict_or_error(unsplit, history)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.plant.__name__)
def test_each_kind_of_anomaly_is_found_by_the_staged_check(defect: Defect) -> None:
    history = LogModel().run([*RICH, *LAST]).operations
    planted = next(defect.plant(history))
    found = in_parts(planted)
    assert defect.anomaly.value in [one["anomaly"] for one in found["anomalies"]]  # type: ignore[attr-defined]
    assert found == unsplit(planted)


@pytest.mark.rule("check-uses-rules-of-one-machine")
@pytest.mark.parametrize("tasks", [1, 3, 7])
def test_the_number_of_tasks_makes_no_difference(tasks: int) -> None:
    history = LogModel().run([*RICH, *LAST]).operations
    for defect in DEFECTS:
        planted = next(defect.plant(history))
        assert in_parts(planted, tasks) == unsplit(planted)


def test_marked_loss_is_excused_by_the_staged_check_too() -> None:
    history = Recording()
    history.sent(1, 0, epoch=1)
    history.sent(2, 1, epoch=1)
    history.polled([(0, 1), (1, 2)], epoch=1, high_watermark=2)
    history.invoke(4)
    history.polled([(0, 4), (1, 5)], epoch=2, repositioned=True, high_watermark=1)
    history.polled([(2, 2)], epoch=2)
    history.sent(5, 1, epoch=2, client="p2")
    history.sent(6, 0, epoch=2, client="p1")
    history.sent(7, 9, epoch=1)
    history.lost(1, 1)
    history.drained([(0, 4)])
    assert len(in_parts(history.operations)["anomalies"]) > 3  # type: ignore[arg-type]
    assert in_parts(history.operations) == unsplit(history.operations)


def test_records_without_a_value_and_sends_without_a_position_are_checked() -> None:
    history = Recording()
    history.sent(1, 0)
    history.invoke(2, partition=NO_PARTITION)
    history.invoke(3, partition=NO_PARTITION)
    history.polled([(0, 1), (1, -1), (2, 2)], partition=1)
    history.polled([(0, 1), (2, 2)], client="c2", partition=1)
    history.polled([(0, 1), (5, -1)], client="c3")
    assert in_parts(history.operations) == unsplit(history.operations)


def test_acknowledgements_without_an_offset_are_counted_by_the_staged_check_too() -> None:
    history = Recording()
    history.sent(1, NO_OFFSET)
    history.sent(2, 0)
    history.sent(3, NO_OFFSET, partition=1)
    assert in_parts(history.operations)["without_offset"] == 2
    assert in_parts(history.operations) == unsplit(history.operations)


def test_the_first_of_several_contradictions_is_reported() -> None:
    first = SendEnded(0, "p1", TOPIC, 0, 7, Outcome.OK, 0)
    second = SendInvoked(0, "p1", TOPIC, 0, 1)
    history = LogModel().run(RICH).operations
    for planted in ([*history, first, second], [*history, second, first]):
        assert verdict_or_error(in_parts, planted) == verdict_or_error(unsplit, planted)
        assert "line" in str(verdict_or_error(in_parts, planted))


def test_a_reading_that_was_not_invoked_is_a_contradiction() -> None:
    history = [*LogModel().run(RICH).operations, HighWatermarkEnded(0, "z", TOPIC, 0, Outcome.OK)]
    reported = verdict_or_error(in_parts, history)
    assert reported == verdict_or_error(unsplit, history)
