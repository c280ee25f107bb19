"""Partition timelines from the events of services, in any order."""

from __future__ import annotations

import random

from tidelog.rpc.event_codec import event_from_wire, event_to_wire
from tidelog.state_changes.change_trace import ChangeTrace, MissingStage
from tidelog.state_changes.event import NO_PARTITION, Cause, Change, Kind, Stage, set_aside
from tidelog.state_changes.topic import from_value, value_of
from tidelog.state_changes.tracing import (
    CAUSE_WINDOW_MS,
    Involved,
    TraceScope,
    trace,
)
from unit.state_changes.sample_events import (
    BEGAN_MS,
    ELECTION,
    elsewhere,
    leader_death,
    of_broker,
    replica,
    state_change,
)

SEA_0 = TraceScope("sea", 0)


def _kinds(lives: list[ChangeTrace]) -> list[Kind]:
    return [each.headline.kind for each in lives]


def _election(lives: list[ChangeTrace]) -> ChangeTrace:
    return next(each for each in lives if each.change_id == ELECTION.id)


def test_a_leaders_death_is_listed_from_its_cause_to_its_last_follower() -> None:
    lives = trace(leader_death() + elsewhere(), SEA_0)
    assert _kinds(lives) == [Kind.BROKER_FENCED, Kind.BROKER_LEFT, Kind.ELECTION]
    election = _election(lives)
    assert [(part.kind, part.broker) for part in election.parts] == [
        (Kind.ELECTION, -1),
        (Kind.BECOME_LEADER, 3),
        (Kind.BECOME_FOLLOWER, 1),
    ]
    assert election.gaps == ()


def test_an_offset_in_the_details_names_no_broker() -> None:
    shrink = state_change(
        0, "broker-3", Kind.ISR_SHRINK, Stage.COMPLETED, revision=5, brokers=[1], end_offsets=[9]
    )
    assert _kinds(trace([shrink, *elsewhere()], SEA_0)) == [Kind.ISR_SHRINK]


def test_stages_of_one_replica_stay_together() -> None:
    created = replica(18, "broker-3", 3, Stage.COMPLETED, kind=Kind.CREATE)
    parts = _election(trace([*leader_death(), created], SEA_0)).parts
    assert [part.broker for part in parts] == [-1, 3, 3, 1]


def test_the_order_in_which_events_arrive_does_not_matter() -> None:
    events = leader_death()
    shuffled = random.Random(7).sample(events, len(events))
    assert trace(shuffled, SEA_0) == trace(events, SEA_0)


def test_equal_events_from_a_file_and_a_service_count_once() -> None:
    assert trace(leader_death() * 2, SEA_0) == trace(leader_death(), SEA_0)


def test_stages_are_in_causal_order_whatever_the_clocks_say() -> None:
    follower = _election(trace(leader_death(), SEA_0)).parts[2]
    assert [stage.stage for stage in follower.stages] == [
        Stage.REQUESTED,
        Stage.RECEIVED,
        Stage.COMPLETED,
        Stage.ACKNOWLEDGED,
    ]


def test_a_cause_long_before_the_first_change_is_not_its_cause() -> None:
    old = of_broker(-CAUSE_WINDOW_MS - 1_000, Kind.BROKER_JOINED, 2)
    assert Kind.BROKER_JOINED not in _kinds(trace([old, *leader_death()], SEA_0))


def test_nothing_before_the_creation_of_a_topic_is_its_cause() -> None:
    joined = of_broker(-2_000, Kind.BROKER_JOINED, 2)
    creation = state_change(-1_000, "controller-1", Kind.CREATE, Stage.COMPLETED, revision=1000)
    traced = _kinds(trace([joined, creation, *leader_death()], SEA_0))
    assert traced[0] is Kind.CREATE
    assert Kind.BROKER_LEFT in traced


def test_a_partition_without_events_has_no_changes() -> None:
    assert trace(leader_death(), TraceScope("sea", 5)) == []


def test_changes_of_a_partition_include_those_of_its_topic() -> None:
    creation = state_change(0, "controller-1", Kind.TOPIC_CREATION, Stage.COMPLETED, partition=-1)
    assert Kind.TOPIC_CREATION in _kinds(trace([creation, *leader_death()], SEA_0))


def test_events_before_the_requested_time_are_omitted() -> None:
    later = state_change(500, "broker-3", Kind.ISR_EXPAND, Stage.COMPLETED, revision=1050)
    scope = SEA_0._replace(since_ms=BEGAN_MS + 400)
    assert _kinds(trace([*leader_death(), later], scope)) == [Kind.ISR_EXPAND]


def _without(stage: Stage, broker: int) -> list[ChangeTrace]:
    kept = [e for e in leader_death() if (e.stage, e.broker) != (stage, broker)]
    return trace(kept, SEA_0)


def test_a_missing_acknowledgement_is_a_gap() -> None:
    election = _election(_without(Stage.ACKNOWLEDGED, 1))
    assert election.gaps == (MissingStage(Kind.BECOME_FOLLOWER, 1, Stage.ACKNOWLEDGED),)


def test_an_unfinished_command_is_a_gap() -> None:
    ends = (Stage.COMPLETED, Stage.ACKNOWLEDGED)
    kept = [e for e in leader_death() if not (e.stage in ends and e.broker == 1)]
    election = _election(trace(kept, SEA_0))
    assert election.gaps == (MissingStage(Kind.BECOME_FOLLOWER, 1, Stage.COMPLETED),)


def test_an_acknowledgement_substitutes_for_a_silent_broker() -> None:
    kept = [e for e in leader_death() if e.service != "broker-1"]
    assert _election(trace(kept, SEA_0)).gaps == ()


def test_without_events_of_the_controller_no_acknowledgement_is_missing() -> None:
    kept = [e for e in leader_death() if e.service != "controller-1"]
    assert _election(trace(kept, SEA_0)).gaps == ()


def test_a_superseded_command_is_not_waited_for() -> None:
    newer = Change("c3-18", Cause.BROKER_JOINED, BEGAN_MS + 40)
    next_command = state_change(
        40, "controller-1", Kind.BECOME_FOLLOWER, Stage.ACKNOWLEDGED, change=newer, broker=1,
        revision=1060,
    )  # fmt: skip
    kept = [e for e in leader_death() if (e.stage, e.broker) != (Stage.ACKNOWLEDGED, 1)]
    election = _election(trace([*kept, next_command], SEA_0))
    assert election.gaps == (MissingStage(Kind.BECOME_FOLLOWER, 1, Stage.ACKNOWLEDGED, "c3-18"),)
    assert election.unfinished == ()


def test_a_deletion_is_not_waited_for_from_a_replica_that_ended_as_a_stray() -> None:
    """Broker 2 died before it got the command; its next incarnation was not assigned the
    replica."""
    expected = Change("c3-20", Cause.TOPIC_DELETED, BEGAN_MS)
    aside = set_aside(2, BEGAN_MS + 60_000)
    events = [
        state_change(
            1, "controller-1", Kind.DELETE, Stage.REQUESTED, change=expected, broker=2, revision=9
        ),
        state_change(
            60_000, "broker-2", Kind.STOP, Stage.COMPLETED, change=aside, broker=2, revision=14
        ),
        state_change(
            90_000, "broker-2", Kind.DELETE, Stage.COMPLETED, change=aside, broker=2, revision=30
        ),
    ]
    for kept in (events, [events[0], events[2]]):
        deletion, stray = trace(kept, SEA_0)
        assert deletion.unfinished == ()
        assert deletion.gaps == (MissingStage(Kind.DELETE, 2, Stage.COMPLETED, aside.id),)
        assert stray.gaps == ()
    assert [part.kind for part in stray.parts] == [Kind.DELETE]
    assert trace(events[:1], SEA_0)[0].unfinished != ()


def test_strays_reported_together_have_each_ended() -> None:
    expected = Change("c3-20", Cause.TOPIC_DELETED, BEGAN_MS)
    removed = Change("b2-61-removed", Cause.STRAY)
    together = state_change(
        90_000, "broker-2", Kind.DELETE, Stage.COMPLETED, change=removed, broker=2, revision=30,
        partition=NO_PARTITION, partitions=[0, 1],
    )  # fmt: skip
    events = [together] + [
        state_change(
            1, "controller-1", Kind.DELETE, Stage.REQUESTED, change=expected, broker=2, revision=9,
            partition=partition,
        )
        for partition in (0, 1, 2)
    ]  # fmt: skip
    lives = [each for each in trace(events, TraceScope("sea")) if each.change_id == expected.id]
    assert [bool(each.unfinished) for each in lives] == [False, False, True]


def test_a_part_that_succeeded_after_a_failure_is_no_failure() -> None:
    failed = replica(18, "broker-3", 3, Stage.FAILED, kind=Kind.BECOME_LEADER)
    assert not _election(trace([*leader_death(), failed], SEA_0)).is_failed
    kept = [e for e in leader_death() if e.broker != 3]
    assert _election(trace([*kept, failed], SEA_0)).is_failed


def test_broker_events_count_while_the_broker_holds_the_partition() -> None:
    involved = Involved(SEA_0, [])
    left = of_broker(9, Kind.BROKER_LEFT, 3)
    assert not involved.takes(left)
    assert involved.takes(replica(17, "broker-3", 3, Stage.COMPLETED))
    assert involved.takes(left)


def test_events_of_other_topics_or_partitions_are_ignored() -> None:
    involved = Involved(SEA_0, leader_death())
    assert [involved.takes(event) for event in elsewhere()] == [False, False, False]


def test_an_event_from_its_service_and_from_the_topic_is_one() -> None:
    by_service = [event_from_wire(event_to_wire(event)) for event in leader_death()]
    by_topic = [from_value(value_of(event)) for event in leader_death()]
    lives = trace(by_service + by_topic, SEA_0)
    assert lives == trace(leader_death(), SEA_0)


def test_two_events_that_differ_only_in_details_are_two() -> None:
    lost = of_broker(0, Kind.LEADER_UNREACHABLE, 2)
    reports = [lost._replace(details={"follower": follower}) for follower in (1, 3)]
    assert len(trace([*leader_death(), *reports], SEA_0)) == 3 + 2


def test_details_in_another_order_are_the_same() -> None:
    shrink = state_change(0, "broker-3", Kind.ISR_SHRINK, Stage.COMPLETED, isr=[1], leader=3)
    other = shrink._replace(details=dict(reversed(list(shrink.details.items()))))
    assert shrink.identity == other.identity
