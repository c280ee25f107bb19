"""Events about replicas that were set aside and have been deleted."""

from __future__ import annotations

from structlog.testing import capture_logs

from tidelog.state_changes.event import (
    NO_PARTITION,
    UNKNOWN_DURATION,
    Cause,
    Kind,
    Stage,
    StateChange,
    set_aside,
)
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.replicas.stray_events import MAX_TOLD_SINGLY, StrayEvents
from tidelog_broker.storage.strays import Stray
from unit.broker.broker_parts import Replicas, on
from unit.broker.fake_log import NAME, TOPIC_ID


def stray(number: int, since_ms: int = 500) -> Stray:
    return Stray(ReplicaKey(TOPIC_ID, number), on(number), f"t-{number}@{since_ms}", since_ms)


def events_of(*strays: Stray) -> list[StateChange]:
    replicas = Replicas()
    replicas.manager.broker_epoch = 11
    StrayEvents(replicas.manager, lambda: 77, replicas.state_changes).deleted(strays)
    return replicas.events()


async def test_the_deletion_of_a_stray_has_the_change_id_of_its_removal() -> None:
    (event,) = events_of(stray(0))
    assert (event.kind, event.stage, event.cause) == (Kind.DELETE, Stage.COMPLETED, Cause.STRAY)
    assert (event.name, event.topic_id, event.broker, event.broker_epoch) == (NAME, TOPIC_ID, 1, 11)
    assert event.change_id == set_aside(1, 500).id
    assert event.revision == 77


async def test_a_few_strays_of_a_topic_are_reported_one_by_one() -> None:
    events = events_of(*map(stray, range(MAX_TOLD_SINGLY)))
    assert [t.name for t in events] == [on(n) for n in range(MAX_TOLD_SINGLY)]


async def test_many_strays_of_a_topic_are_reported_as_one() -> None:
    numbers = list(range(MAX_TOLD_SINGLY + 1))
    (event,) = events_of(*(stray(number, 500 + number) for number in reversed(numbers)))
    assert (event.topic, event.partition, event.details) == (
        NAME.topic,
        NO_PARTITION,
        {"partitions": numbers},
    )
    assert event.change_id == set_aside(1, 500).id


async def test_pending_events_of_a_previous_incarnation_are_emitted() -> None:
    (event,) = events_of(stray(0, since_ms=0)._replace(by_previous_incarnation=True))
    assert (event.kind, event.cause, event.name) == (Kind.DELETE, Cause.STRAY, NAME)
    assert (event.change_id, event.duration_ms) == ("b1-11-removed", UNKNOWN_DURATION)


async def test_a_deletion_by_command_is_not_reported_again_and_its_files_are_one_line() -> None:
    with capture_logs() as lines:
        assert events_of(stray(0, since_ms=0), stray(1, since_ms=0)) == []
    assert [(line["event"], line["replicas"]) for line in lines] == [
        ("deleted_replicas_removed", 2)
    ]
