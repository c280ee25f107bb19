"""Partitions touched by an event are taken in bounded steps."""

from __future__ import annotations

import pytest

from tidelog.model import TopicPartition
from tidelog_controller.core import deferred_touches
from tidelog_controller.core.deferred_touches import DeferredTouches
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, encode_leader_and_isr
from tidelog_runtime.metadata.store import Changed, KeyValue
from unit.controller.driver import KEYS


@pytest.fixture(autouse=True)
def _two_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_touches, "MAX_TAKEN_PER_STEP", 2)
    monkeypatch.setattr(deferred_touches, "MAX_SEEN_PER_STEP", 4)


def name(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def taken(touches: DeferredTouches) -> list[list[int]]:
    steps = []
    while touches:
        steps.append([partition for _, partition in touches.take()])
    assert not touches.take()
    return steps


def led_by(*leaders: int) -> Context:
    """Partition n of the topic is led by the n-th of these brokers."""
    context = Context(KEYS)
    for number, leader in enumerate(leaders):
        state = LeaderAndIsr("id", (leader,), 1, leader, 0, (Member(leader, 5),), (), 1)
        value = encode_leader_and_isr(state)
        key = KEYS.leader_and_isr(name(number))
        context.absorb(Changed(key, KeyValue(key, value, 5, 5), 5))
    return context


def test_a_step_takes_a_part_of_a_topic_in_order() -> None:
    touches = DeferredTouches(Context(KEYS))
    touches.add_numbers("t", range(5))
    assert taken(touches) == [[0, 1], [2, 3], [4]]


def test_a_topic_without_partitions_leaves_nothing_to_take() -> None:
    touches = DeferredTouches(Context(KEYS))
    touches.add_numbers("t", ())
    assert not touches


def test_a_partition_touched_twice_is_taken_once_and_waiting_ones_go_first() -> None:
    touches = DeferredTouches(Context(KEYS))
    touches.add_numbers("t", range(5))
    touches.take()
    touches.add_numbers("t", range(5))
    assert taken(touches) == [[2, 3], [4, 0], [1]]


def test_a_small_topic_does_not_wait_for_a_large_one() -> None:
    touches = DeferredTouches(Context(KEYS))
    touches.add_numbers("t", (0, 1))
    touches.add([name(7, "u")])
    touches.add_numbers("t", (2,))
    assert taken(touches) == [[0, 7], [1, 2]]


def test_only_partitions_that_the_broker_leads_when_they_are_taken_are_taken() -> None:
    touches = DeferredTouches(led_by(1, 2, 2, 2, 2, 1, 1, 1))
    touches.add_led_by(1, [name(number) for number in range(9)])
    # The number of skipped partitions per step is bounded too.
    assert taken(touches) == [[0], [5, 6], [7]]
