"""Violations that the simulator finds in the steps of a move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from simulation.move_rules import ACTIVATED, CANCELLED, LEADER_LEFT, SWITCHED, judge_step
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, Moving
from unit.simulation.planting import A, B, C, Store, finds, state

D = Member(4, 40)
TO_4 = Moving("op", (1, 2, 3), (2, 4))
MOVING = replace(state(isr=(A, B, C, D)), replicas=TO_4.replicas, moving=TO_4)
SWITCHED_STATE = replace(MOVING, replicas=(2, 4), moving=None, leader=2, leader_epoch=6, isr=(B, D))
BACK = replace(MOVING, replicas=(1, 2, 3), moving=None, leader_epoch=6, isr=(A, B, C))


def broken(
    old: LeaderAndIsr, new: LeaderAndIsr, config: Mapping[str, str] | None = None
) -> str | None:
    found = judge_step(old, new, config or {}, Counter())
    return found.name if found else None


def test_the_steps_of_a_move_are_valid_and_are_counted() -> None:
    seen: Counter[str] = Counter()
    started = replace(state(), replicas=TO_4.replicas, moving=TO_4)
    for old, new in ((state(), started), (MOVING, SWITCHED_STATE), (MOVING, BACK)):
        assert judge_step(old, new, {}, seen) is None
    assert +seen == {ACTIVATED: 1, SWITCHED: 1, LEADER_LEFT: 1, CANCELLED: 1}


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (state(), replace(state(), replicas=(1, 2)), "replicas_changed"),
        (
            state(),
            replace(state(), replicas=(1, 2, 3, 4), moving=TO_4, isr=(A, B)),
            "activation_changed_more",
        ),
        (state(), replace(state(), replicas=(2, 4), moving=TO_4), "activation_changed_more"),
        (MOVING, replace(SWITCHED_STATE, leader_epoch=5), "move_ended_within_epoch"),
        (MOVING, replace(SWITCHED_STATE, leader=1), "move_ended_without_leader"),
        (MOVING, replace(SWITCHED_STATE, isr=(B,)), "move_changed_isr"),
        (
            replace(MOVING, isr=(A, B, C)),
            replace(SWITCHED_STATE, isr=(B,)),
            "switched_before_in_sync",
        ),
        (
            replace(MOVING, isr=(A, D)),
            replace(BACK, isr=(A,), min_isr=2),
            "cancelled_with_too_few",
        ),
        (MOVING, replace(BACK, eligible=(D,)), "move_changed_eligible"),
        (MOVING, replace(BACK, replicas=(1, 2), isr=(A, B)), "replicas_changed"),
        (MOVING, replace(BACK, min_isr=1), "min_isr_of_wrong_set"),
    ],
)
def test_invalid_steps_are_found(old: LeaderAndIsr, new: LeaderAndIsr, name: str) -> None:
    assert broken(old, new) == name


def test_the_min_isr_of_a_topic_applies_whatever_the_replicas() -> None:
    config = {"min_insync_replicas": "1"}
    assert broken(MOVING, BACK, config) == "min_isr_of_wrong_set"
    assert broken(MOVING, replace(BACK, min_isr=1), config) is None


def test_every_write_of_the_store_is_checked() -> None:
    store = Store()
    store.write(state())
    store.write(replace(state(), replicas=TO_4.replicas, moving=TO_4))
    with finds("switched_before_in_sync"):
        store.write(replace(SWITCHED_STATE, isr=(B,)))


def test_a_replica_that_stays_after_a_move_must_hold_committed_records() -> None:
    store = Store()
    joined = []
    store.rules.on_joined = lambda _, member: joined.append(member)
    store.write(state())
    to_12 = Moving("op", (1, 2, 3), (1, 2))
    store.write(replace(state(), moving=to_12))
    store.write(replace(state(epoch=6, isr=(A, B)), replicas=(1, 2)))
    assert joined == [A, B]
