"""Stages belong to one change by their ids."""

from __future__ import annotations

import pytest

from tidelog.state_changes.change_trace import ChangeTrace
from tidelog.state_changes.event import (
    NO_CHANGE,
    Cause,
    Change,
    Kind,
    Stage,
    StateChange,
    broker_stopping,
)
from tidelog.state_changes.tracing import TraceScope, trace
from unit.state_changes.planted import BEGAN_MS, of_broker, told

REPORT = Change("broker-1-leader-2-report-7", Cause.NO_ANSWER, BEGAN_MS + 100)
STOPPING = broker_stopping(2, 42, BEGAN_MS)


def _at(
    at_ms: int, service: str, kind: Kind, stage: Stage, change: Change = NO_CHANGE
) -> StateChange:
    """An event of broker 2."""
    event = of_broker(at_ms, kind, 2)
    return event._replace(service=service, stage=stage, change_id=change.id)


def _unreachable(at_ms: int, service: str, stage: Stage, change: Change) -> StateChange:
    return _at(at_ms, service, Kind.LEADER_UNREACHABLE, stage, change)


def _stopping(at_ms: int, service: str, stage: Stage) -> StateChange:
    return _at(at_ms, service, Kind.BROKER_STOPPING, stage, STOPPING)


REQUESTED = _unreachable(100, "broker-1", Stage.REQUESTED, REPORT)


def _timelines(*events: StateChange) -> list[ChangeTrace]:
    return trace(events, TraceScope())


def _stages(life: ChangeTrace) -> list[tuple[str, Stage]]:
    return [(event.service, event.stage) for part in life.parts for event in part.stages]


def test_a_request_of_a_follower_ends_where_the_controller_acts_on_it() -> None:
    done = _unreachable(120, "controller-1", Stage.COMPLETED, REPORT)
    (timeline,) = _timelines(done, REQUESTED)
    assert timeline.unfinished == ()
    assert _stages(timeline) == [("broker-1", Stage.REQUESTED), ("controller-1", Stage.COMPLETED)]


def test_an_action_for_another_follower_ends_nothing() -> None:
    other = REPORT._replace(id="broker-3-leader-2-report-7")
    done = _unreachable(120, "controller-1", Stage.COMPLETED, other)
    assert [len(each.unfinished) for each in _timelines(REQUESTED, done)] == [1, 0]


def test_an_earlier_loss_of_the_leader_by_a_follower_is_a_separate_change() -> None:
    standing = REPORT._replace(id="broker-1-leader-2-3")
    lost = _unreachable(90, "broker-1", Stage.COMPLETED, standing)
    assert [len(each.unfinished) for each in _timelines(lost, REQUESTED)] == [0, 1]


@pytest.mark.parametrize("end", [Stage.COMPLETED, Stage.FAILED])
def test_a_stopping_broker_logs_how_that_ended(end: Stage) -> None:
    (timeline,) = _timelines(
        _stopping(0, "broker-2", Stage.REQUESTED),
        _stopping(5, "controller-1", Stage.RECEIVED),
        _stopping(3_000, "broker-2", end),
    )
    assert _stages(timeline) == [
        ("broker-2", Stage.REQUESTED),
        ("controller-1", Stage.RECEIVED),
        ("broker-2", end),
    ]
    assert timeline.unfinished == ()
    assert timeline.is_failed is (end is Stage.FAILED)


def test_a_stop_announced_to_a_controller_is_not_its_end() -> None:
    (timeline,) = _timelines(
        _stopping(0, "broker-2", Stage.REQUESTED), _stopping(5, "controller-1", Stage.RECEIVED)
    )
    assert [gap.missing for gap in timeline.unfinished] == [Stage.COMPLETED]


def test_the_end_of_a_stopped_broker_without_events_is_not_missing() -> None:
    (timeline,) = _timelines(_stopping(5, "controller-1", Stage.RECEIVED))
    assert timeline.unfinished == ()


def test_two_incarnations_of_a_broker_stop_under_two_ids() -> None:
    assert broker_stopping(2, 42).id == STOPPING.id != broker_stopping(2, 77).id


def test_identical_facts_are_kept_separate() -> None:
    joined = [of_broker(at_ms, Kind.BROKER_JOINED, 2) for at_ms in (0, 100)]
    assert len(_timelines(*joined)) == 2


def test_a_deletion_finished_by_the_next_controller_keeps_its_first_id() -> None:
    change = Change("c1-5", Cause.REQUESTED, BEGAN_MS)
    requested = told(
        0, "controller-1", Kind.TOPIC_DELETION, Stage.REQUESTED, change=change, partition=-1
    )
    gone = told(
        4_000, "controller-2", Kind.TOPIC_DELETION, Stage.COMPLETED, partition=-1, revision=9
    )
    (timeline,) = _timelines(requested, gone)
    assert (timeline.change_id, timeline.revision, timeline.unfinished) == ("c1-5", 9, ())
