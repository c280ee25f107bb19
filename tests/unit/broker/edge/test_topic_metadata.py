"""What is kept of a topic between two answers is never older than what its broker knows."""

from __future__ import annotations

from copy import deepcopy as copy
from dataclasses import replace

import pytest

from tidelog.v1 import broker_pb2
from tidelog_broker.edge import topic_metadata
from tidelog_broker.edge.topic_metadata import TopicMetadata
from tidelog_broker.membership.metadata_cache import MetadataCache, VersionedState
from tidelog_runtime.metadata.store import Changed
from unit.broker.broker_parts import KEYS, broker_change, on, partition_change, topic_change
from unit.broker.fake_log import NAME, state

OTHER = on(1)
TOPIC_KEY = topic_change().key


@pytest.fixture
def cache() -> MetadataCache:
    known = MetadataCache(KEYS)
    states = (partition_change(state(), 120), partition_change(state(), 120, OTHER))
    known.apply([topic_change(partitions=2), *map(broker_change, (1, 2, 3)), *states])
    return known


def test_only_a_partition_that_has_changed_is_made_anew(
    cache: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    tell = topic_metadata._Telling.__call__

    def counted(
        self: topic_metadata._Telling,
        told: broker_pb2.PartitionMetadata,
        number: int,
        known: VersionedState,
    ) -> None:
        made.append(number)
        tell(self, told, number, known)

    monkeypatch.setattr(topic_metadata._Telling, "__call__", counted)
    topics = TopicMetadata(cache)
    first, other = map(copy, topics.of(NAME.topic).partitions)
    cache.apply([partition_change(state(leader=2), 130)])
    changed, same = topics.of(NAME.topic).partitions
    assert (first.leader, changed.leader) == (1, 2)
    assert same == other
    assert made == [0, 1, 0]


def test_partitions_that_share_a_state_differ_in_what_is_their_own() -> None:
    known = MetadataCache(KEYS)
    shared, other = state(), state(leader=2)
    known.partitions[NAME.topic] = {
        0: VersionedState(shared, 120, 120),
        1: VersionedState(shared, 120, 110),
        2: VersionedState(other, 130, 100),
        3: VersionedState(shared, 120, 90),
    }
    known.apply([topic_change(partitions=4)])
    told = TopicMetadata(known).of(NAME.topic).partitions
    assert [(p.partition, p.leader, p.create_revision) for p in told] == [
        (0, 1, 120),
        (1, 1, 110),
        (2, 2, 100),
        (3, 1, 90),
    ]


def test_who_is_offline_changes_with_who_is_alive(cache: MetadataCache) -> None:
    topics = TopicMetadata(cache)

    def offline() -> list[int]:
        return [*topics.of(NAME.topic).partitions[0].offline_replicas]

    told = [offline()]
    for change in (Changed(KEYS.broker(3), None, 131), broker_change(3)):
        cache.apply([change])
        told.append(offline())
    assert told == [[], [3], []]


def test_of_a_topic_that_is_gone_nothing_is_kept(cache: MetadataCache) -> None:
    topics = TopicMetadata(cache)
    topics.of(NAME.topic)
    cache.apply([Changed(TOPIC_KEY, None, 132)])
    assert topics.of(NAME.topic).HasField("error")
    assert not topics._made


def test_partitions_that_come_and_go_are_told(cache: MetadataCache) -> None:
    topics = TopicMetadata(cache)
    told = [len(topics.of(NAME.topic).partitions)]
    cache.apply([topic_change(partitions=3), partition_change(state(), 140, on(2))])
    told.append(len(topics.of(NAME.topic).partitions))
    cache.apply([Changed(KEYS.leader_and_isr(on(2)), None, 141)])
    told.append(len(topics.of(NAME.topic).partitions))
    assert told == [2, 3, 2]


def test_a_partition_of_another_topic_of_the_name_is_not_told(cache: MetadataCache) -> None:
    topics = TopicMetadata(cache)
    topics.of(NAME.topic)
    other = replace(state(), topic_id="other-id-other-id-othe")
    cache.apply([partition_change(other, 140, OTHER)])
    assert [p.partition for p in topics.of(NAME.topic).partitions] == [0]
