"""Stages that are of one change, with an id and without."""

from __future__ import annotations

import pytest

from tidelog.state_changes.change_life import ChangeLife
from tidelog.state_changes.event import Cause, Change, Kind, Stage, StateChange
from tidelog.state_changes.grouping import MAX_CLOCK_SKEW_MS, MAX_JOIN_MS
from tidelog.state_changes.life import TraceScope, trace
from unit.state_changes.planted import BEGAN_MS, of_broker, told


def _at(at_ms: int, service: str, kind: Kind, stage: Stage, **details: int) -> StateChange:
    """Of broker 2, and without an id."""
    event = of_broker(at_ms, kind, 2)
    return event._replace(service=service, stage=stage, details=details)


def _unreachable(at_ms: int, service: str, stage: Stage, **details: int) -> StateChange:
    return _at(at_ms, service, Kind.LEADER_UNREACHABLE, stage, **details)


REQUESTED = _unreachable(100, "broker-1", Stage.REQUESTED, unanswered_ms=900)


def _lives(*events: StateChange) -> list[ChangeLife]:
    return trace(events, TraceScope())


@pytest.mark.parametrize("took_ms", [-MAX_CLOCK_SKEW_MS, 20, MAX_JOIN_MS])
def test_what_a_follower_asks_for_ends_where_the_controller_acts_on_it(took_ms: int) -> None:
    done = _unreachable(100 + took_ms, "controller-1", Stage.COMPLETED, follower=1)
    (life,) = _lives(REQUESTED, done)
    assert life.unfinished == ()
    assert [stage.stage for stage in life.parts[0].stages] == [Stage.REQUESTED, Stage.COMPLETED]


@pytest.mark.parametrize("took_ms", [-MAX_CLOCK_SKEW_MS - 1, MAX_JOIN_MS + 1])
def test_an_end_at_another_time_is_of_another_request(took_ms: int) -> None:
    done = _unreachable(100 + took_ms, "controller-1", Stage.COMPLETED, follower=1)
    assert [len(life.unfinished) for life in _lives(REQUESTED, done)].count(1) == 1


def test_what_is_done_for_another_follower_ends_nothing() -> None:
    done = _unreachable(120, "controller-1", Stage.COMPLETED, follower=3)
    assert [len(life.unfinished) for life in _lives(REQUESTED, done)] == [1, 0]


def test_that_a_follower_lost_its_leader_before_is_a_fact_of_its_own() -> None:
    lost = _unreachable(90, "broker-1", Stage.COMPLETED)
    assert [len(life.unfinished) for life in _lives(lost, REQUESTED)] == [0, 1]


def test_an_end_belongs_to_the_newest_request_before_it() -> None:
    again = REQUESTED._replace(time_ms=BEGAN_MS + 5_000)
    done = _unreachable(5_010, "controller-1", Stage.COMPLETED, follower=1)
    lives = _lives(REQUESTED, again, done)
    assert [(life.began_ms - BEGAN_MS, len(life.unfinished)) for life in lives] == [
        (100, 1),
        (5_000, 0),
    ]


@pytest.mark.parametrize("end", [Stage.COMPLETED, Stage.FAILED])
def test_a_broker_that_stops_tells_how_that_ended(end: Stage) -> None:
    stopping = Kind.BROKER_STOPPING
    lives = _lives(
        _at(0, "broker-2", stopping, Stage.REQUESTED),
        _at(5, "controller-1", stopping, Stage.COMPLETED),
        _at(3_000, "broker-2", stopping, end),
    )
    assert [life.unfinished for life in lives] == [(), ()]
    assert lives[0].is_failed is (end is Stage.FAILED)


def test_that_a_controller_heard_of_the_stopping_does_not_end_it() -> None:
    stopping = Kind.BROKER_STOPPING
    lives = _lives(
        _at(0, "broker-2", stopping, Stage.REQUESTED),
        _at(5, "controller-1", stopping, Stage.COMPLETED),
    )
    assert [len(life.unfinished) for life in lives] == [1, 0]


def test_two_lives_of_a_broker_are_two() -> None:
    first = _at(0, "broker-2", Kind.BROKER_STOPPING, Stage.REQUESTED)
    second = _at(50, "broker-2", Kind.BROKER_STOPPING, Stage.COMPLETED)._replace(broker_epoch=77)
    assert len(_lives(first, second)) == 2


def test_facts_that_are_alike_stay_apart() -> None:
    joined = [of_broker(at_ms, Kind.BROKER_JOINED, 2) for at_ms in (0, 100)]
    assert len(_lives(*joined)) == 2


def test_a_deletion_that_the_next_controller_ends_is_one_under_its_first_id() -> None:
    change = Change("c1-5", Cause.REQUESTED, BEGAN_MS)
    requested = told(
        0, "controller-1", Kind.TOPIC_DELETION, Stage.REQUESTED, change=change, partition=-1
    )
    gone = told(
        4_000, "controller-2", Kind.TOPIC_DELETION, Stage.COMPLETED, partition=-1, revision=9
    )
    (life,) = _lives(requested, gone)
    assert (life.change_id, life.revision, life.unfinished) == ("c1-5", 9, ())
