"""Kind and cause of a write to a partition's key, as they are published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Cause, Change, Kind
from tidelog_controller.policies.causes import (
    Circumstances,
    cause_of,
    change_id,
    is_by_controller,
    kind_of,
)
from tidelog_controller.policies.electability import LiveBroker
from tidelog_runtime.metadata.schema import NOT_WHOLE, Departure, LeaderAndIsr, Member, Moving

LED = LeaderAndIsr("id", (1, 2, 3), 1, 1, 5, (Member(1, 10), Member(2, 20), Member(3, 30)), (), 2)
LEADERLESS = replace(LED, leader=NO_LEADER, leader_epoch=6)
ELECTED = replace(LED, leader=2, leader_epoch=6, isr=(Member(2, 20), Member(3, 30)))
UNCLEAN = replace(LED, leader=2, leader_epoch=7, isr=(Member(2, 21),), unclean_leader_epoch=7)
MOVING = replace(LED, replicas=(1, 2, 3, 4), moving=Moving("op", (1, 2, 3), (4, 2)))
SWITCHED = replace(MOVING, replicas=(4, 2), leader=2, leader_epoch=6, moving=None)
BACK = replace(MOVING, replicas=(1, 2, 3), leader_epoch=6, moving=None)
WITHOUT_2 = replace(LED, isr=(Member(1, 10), Member(3, 30)))
RESIGNED = replace(LED, isr=(Member(1, NOT_WHOLE), Member(2, 20), Member(3, 30)))


def running(broker_epoch: int, *, is_running: bool = True) -> LiveBroker:
    return LiveBroker(broker_epoch, is_running, broker_epoch, broker_epoch)


ALL = {1: running(10), 2: running(20), 3: running(30)}


def departed(broker_id: int, cause: Cause) -> dict[int, Departure]:
    return {broker_id: Departure(10 * broker_id, cause, 0, "")}


def without(broker_id: int) -> dict[int, LiveBroker]:
    return {b: broker for b, broker in ALL.items() if b != broker_id}


@pytest.mark.parametrize(
    ("old", "new", "deleting", "kind"),
    [
        (None, LED, False, Kind.CREATE),
        (LED, ELECTED, False, Kind.ELECTION),
        (LEADERLESS, UNCLEAN, False, Kind.UNCLEAN_ELECTION),
        (LED, LEADERLESS, False, Kind.LEADER_LOST),
        (LED, WITHOUT_2, False, Kind.ISR_SHRINK),
        (LED, LED.with_min_isr(3), False, Kind.CONFIG_CHANGE),
        (LED, MOVING, False, Kind.MOVE_ACTIVATED),
        (MOVING, SWITCHED, False, Kind.MOVE_SWITCHED),
        (MOVING, BACK, False, Kind.MOVE_CANCELLED),
        (MOVING, replace(LEADERLESS, replicas=MOVING.replicas), True, Kind.STOP),
        (LED, LEADERLESS, True, Kind.STOP),
        (LEADERLESS, None, True, Kind.DELETE),
    ],
)
def test_the_kind_follows_from_the_old_and_new_states(
    old: LeaderAndIsr | None, new: LeaderAndIsr | None, deleting: bool, kind: Kind
) -> None:
    assert kind_of(old, new, deleting=deleting) is kind


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        (LED, MOVING, Cause.REASSIGNED),
        (MOVING, SWITCHED, Cause.REASSIGNED),
        (MOVING, BACK, Cause.CANCELLED),
    ],
)
def test_the_cause_of_a_move_step_is_the_operation(
    old: LeaderAndIsr, new: LeaderAndIsr, cause: Cause
) -> None:
    assert cause_of(old, new, Circumstances(ALL, {})) is cause


@pytest.mark.parametrize("cause", [Cause.BROKER_CRASHED, Cause.BROKER_LEASE_ENDED])
@pytest.mark.parametrize("new", [ELECTED, LEADERLESS])
def test_the_election_after_a_departure_has_the_cause_of_the_departure(
    cause: Cause, new: LeaderAndIsr
) -> None:
    assert cause_of(LED, new, Circumstances(without(1), departed(1, cause))) is cause


def test_a_follower_leaves_the_isr_with_the_cause_of_its_departure() -> None:
    known = Circumstances(without(2), departed(2, Cause.BROKER_STOPPED))
    assert cause_of(LED, WITHOUT_2, known) is Cause.BROKER_STOPPED


def test_a_leader_in_a_new_incarnation_has_restarted() -> None:
    known = Circumstances({**ALL, 1: running(11)}, {})
    assert cause_of(LED, ELECTED, known) is Cause.BROKER_RESTARTED


def test_an_observed_crash_stays_the_cause_when_the_broker_is_back() -> None:
    known = Circumstances({**ALL, 1: running(11)}, departed(1, Cause.BROKER_CRASHED))
    assert cause_of(LED, ELECTED, known) is Cause.BROKER_CRASHED


def test_the_end_of_another_incarnation_is_no_cause() -> None:
    older = {1: Departure(9, Cause.BROKER_CRASHED, 0, "")}
    assert cause_of(LED, ELECTED, Circumstances(without(1), older)) is Cause.BROKER_GONE


def test_a_stopping_leader_transfers_leadership() -> None:
    known = Circumstances({**ALL, 1: running(10, is_running=False)}, {})
    assert cause_of(LED, ELECTED, known) is Cause.BROKER_STOPPING


def test_a_resigned_leader_is_replaced_because_it_resigned() -> None:
    assert cause_of(RESIGNED, ELECTED, Circumstances(ALL, {})) is Cause.REPLICA_RESIGNED


def test_a_deposed_leader_is_replaced_because_it_is_unreachable() -> None:
    known = Circumstances(ALL, {}, deposes=True)
    assert cause_of(LED, ELECTED, known) is Cause.LEADER_UNREACHABLE


def test_an_intact_member_that_returns_leads_because_it_joined() -> None:
    assert cause_of(LEADERLESS, replace(ELECTED, leader_epoch=7), Circumstances(ALL, {})) is (
        Cause.BROKER_JOINED
    )


@pytest.mark.parametrize(("consented", "cause"), [(False, Cause.RECOVERY), (True, Cause.CONSENT)])
def test_an_unclean_election_is_a_recovery_or_has_consent(consented: bool, cause: Cause) -> None:
    known = Circumstances(ALL, {}, consented=consented)
    assert cause_of(LEADERLESS, UNCLEAN, known) is cause


def test_the_cause_of_a_topic_change_names_the_topic() -> None:
    assert cause_of(None, LED, Circumstances(ALL, {})) is Cause.TOPIC_CREATED
    deleting = Circumstances(ALL, {}, deleting=True)
    assert cause_of(LED, LEADERLESS, deleting) is Cause.TOPIC_DELETED
    assert cause_of(LEADERLESS, None, deleting) is Cause.TOPIC_DELETED


def test_a_min_isr_change_is_caused_by_the_configuration() -> None:
    assert cause_of(LED, LED.with_min_isr(3), Circumstances(ALL, {})) is Cause.CONFIG_CHANGED


def test_change_ids_of_controllers_differ_from_those_of_brokers() -> None:
    assert is_by_controller(Change(change_id(4, 17)))
    assert not is_by_controller(Change("b1-4-17"))
