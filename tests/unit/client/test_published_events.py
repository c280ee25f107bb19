"""Events in the topic `__state_changes`, and the notes where it cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.client.published_events import READ_TIMEOUT_MS, Published, published
from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog.state_changes.json_form import format_time
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC
from tidelog.state_changes.tracing import TraceScope
from unit.client.fake_broker import FakeCluster
from unit.client.memory_connections import MemoryConnections
from unit.client.planted_topic import publish, write
from unit.metadata.virtual_time import run, virtual_clock
from unit.state_changes.planted import BEGAN_MS, elsewhere, leader_death, told

SEA_0 = TraceScope("sea", 0)
NOBODY = 9


@pytest.fixture
def cluster() -> FakeCluster:
    """Three brokers, each of which leads a partition of the topic."""
    made = FakeCluster().in_memory(3)
    made.create(STATE_CHANGES_TOPIC, [0, 1, 2])
    return made


def read(cluster: FakeCluster, scope: TraceScope = SEA_0, **bounds: Any) -> Published:
    answers: list[Published] = []

    async def story() -> None:
        answers.append(
            await published(
                cluster.bootstrap(),
                scope,
                connections=MemoryConnections(cluster),
                clock=virtual_clock(),
                **bounds,
            )
        )

    run(story())
    return answers[0]


def shrinks(count: int) -> list[StateChange]:
    """One event each second."""
    return [
        told(n * 1_000, "broker-1", Kind.ISR_SHRINK, Stage.COMPLETED, revision=n + 1)
        for n in range(count)
    ]


def revisions(found: Published) -> list[int]:
    return sorted(event.revision for event in found.events)


def test_events_of_the_scope_are_returned_from_all_partitions(cluster: FakeCluster) -> None:
    events = leader_death()
    publish(cluster, events[:3] + elsewhere(), 0)
    publish(cluster, events[3:7], 1)
    publish(cluster, events[7:], 2)
    found = read(cluster)
    broker_left = elsewhere()[-1]  # dropped by `relevant`, which does not check its broker
    by_identity = {event.identity for event in found.events}
    assert by_identity == {event.identity for event in [*events, broker_left]}
    assert found.notes == ()


def test_events_older_than_requested_are_neither_returned_nor_read(cluster: FakeCluster) -> None:
    publish(cluster, shrinks(20), per_batch=5)
    found = read(cluster, SEA_0._replace(since_ms=BEGAN_MS + 12_000))
    assert revisions(found) == list(range(13, 21))
    requests: list[Any] = list(cluster.brokers[0].seen["fetch"])
    asked = [partition for request in requests for partition in request.partitions]
    assert min(partition.fetch_offset for partition in asked) == 10


def test_of_a_long_topic_the_newest_events_are_read_and_a_note_says_from_when(
    cluster: FakeCluster,
) -> None:
    publish(cluster, shrinks(20))
    publish(cluster, shrinks(3), partition=1)
    found = read(cluster, max_events_per_partition=6)
    assert revisions(found) == [1, 2, 3, *range(15, 21)]
    (note,) = found.notes
    assert f"the newest 6 events were read: before {format_time(BEGAN_MS + 14_000)}" in note


def test_a_topic_within_the_limit_is_read_without_a_note(cluster: FakeCluster) -> None:
    publish(cluster, shrinks(6))
    assert read(cluster, max_events_per_partition=6).notes == ()


def test_a_partition_without_a_leader_does_not_affect_the_others(cluster: FakeCluster) -> None:
    publish(cluster, shrinks(3), 0)
    publish(cluster, shrinks(3), 1)
    cluster.elect(STATE_CHANGES_TOPIC, 1, NOBODY)
    found = read(cluster)
    assert revisions(found) == [1, 2, 3]
    (note,) = found.notes
    assert f"{STATE_CHANGES_TOPIC}/1" in note


def test_at_the_timeout_the_events_read_so_far_are_returned(cluster: FakeCluster) -> None:
    publish(cluster, shrinks(3), 0)
    publish(cluster, shrinks(3), 1)
    cluster.brokers[1].script["fetch"].extend(["hang"] * 9)
    found = read(cluster)
    assert revisions(found) == [1, 2, 3]
    assert found.notes == (
        f"{STATE_CHANGES_TOPIC} could not be read to its end within {READ_TIMEOUT_MS} ms.",
    )


def _no_topic(cluster: FakeCluster) -> None:
    del cluster.topics[STATE_CHANGES_TOPIC]


def _no_broker(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.alive = False


@pytest.mark.parametrize(
    ("fault", "said"),
    [(_no_topic, "There is no topic __state_changes"), (_no_broker, "could not be read")],
)
def test_an_obstacle_becomes_a_note(
    cluster: FakeCluster, fault: Callable[[FakeCluster], None], said: str
) -> None:
    fault(cluster)
    found = read(cluster)
    assert found.events == []
    (note,) = found.notes
    assert said in note


def test_even_a_bug_of_the_client_becomes_a_note(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by accident")

    monkeypatch.setattr(MemoryConnections, "broker", broken)
    assert read(cluster).notes == (
        f"{STATE_CHANGES_TOPIC} could not be read: ZeroDivisionError: by accident.",
    )


def test_an_event_of_a_newer_version_is_skipped(cluster: FakeCluster) -> None:
    write(cluster, [b'{"kind": "melted"}', b"no JSON"], [b"sea/0", b"sea/0"], [1, 1])
    publish(cluster, shrinks(1))
    assert revisions(read(cluster)) == [1]
