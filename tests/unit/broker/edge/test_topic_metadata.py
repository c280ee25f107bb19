"""Cached topic metadata is never older than what its broker knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from copy import deepcopy as copy
from dataclasses import replace

import pytest

from tidelog.v1 import broker_pb2
from tidelog_broker.edge import topic_metadata
from tidelog_broker.edge.topic_metadata import TopicMetadata
from tidelog_broker.membership.metadata_cache import MetadataCache, VersionedState
from tidelog_runtime.metadata.store import Changed
from unit.broker.broker_parts import KEYS, broker_change, on, partition_change, topic_change
from unit.broker.fake_log import NAME, TOPIC_ID, state
from unit.loop_turns import Turns

OTHER = on(1)
TOPIC_KEY = topic_change().key


async def metadata_of(topics: TopicMetadata) -> broker_pb2.TopicMetadata:
    answer = broker_pb2.MetadataResponse()
    await topics.add_to(answer, NAME.topic)
    (topic,) = answer.topics
    return topic


def wide(leader: int = 1, topic_id: str = TOPIC_ID, revision: int = 120) -> Iterator[Changed]:
    """A topic of five partitions that is answered in pieces of two."""
    yield topic_change(partitions=5, topic_id=topic_id, revision=revision)
    for number in range(5):
        led = replace(state(leader=leader), topic_id=topic_id)
        yield partition_change(led, revision, on(number))


@pytest.fixture
def narrow_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_metadata, "PARTITIONS_PER_PIECE", 2)


@pytest.fixture
def cache() -> MetadataCache:
    known = MetadataCache(KEYS)
    states = (partition_change(state(), 120), partition_change(state(), 120, OTHER))
    known.apply([topic_change(partitions=2), *map(broker_change, (1, 2, 3)), *states])
    return known


async def test_only_a_changed_partition_is_serialized_again(
    cache: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    write_partition = topic_metadata._PartitionWriter.__call__

    def counted(
        self: topic_metadata._PartitionWriter,
        metadata: broker_pb2.PartitionMetadata,
        number: int,
        known: VersionedState,
    ) -> None:
        made.append(number)
        write_partition(self, metadata, number, known)

    monkeypatch.setattr(topic_metadata._PartitionWriter, "__call__", counted)
    topics = TopicMetadata(cache)
    first, other = map(copy, (await metadata_of(topics)).partitions)
    cache.apply([partition_change(state(leader=2), 130)])
    changed, same = (await metadata_of(topics)).partitions
    assert (first.leader, changed.leader) == (1, 2)
    assert same == other
    assert made == [0, 1, 0]


async def test_partitions_that_share_a_state_keep_their_own_fields() -> None:
    known = MetadataCache(KEYS)
    shared, other = state(), state(leader=2)
    known.partitions[NAME.topic] = {
        0: VersionedState(shared, 120, 120),
        1: VersionedState(shared, 120, 110),
        2: VersionedState(other, 130, 100),
        3: VersionedState(shared, 120, 90),
    }
    known.apply([topic_change(partitions=4)])
    partitions = (await metadata_of(TopicMetadata(known))).partitions
    assert [(p.partition, p.leader, p.create_revision) for p in partitions] == [
        (0, 1, 120),
        (1, 1, 110),
        (2, 2, 100),
        (3, 1, 90),
    ]


async def test_offline_replicas_follow_the_live_brokers(cache: MetadataCache) -> None:
    topics = TopicMetadata(cache)

    async def offline() -> list[int]:
        return [*(await metadata_of(topics)).partitions[0].offline_replicas]

    seen = [await offline()]
    for change in (Changed(KEYS.broker(3), None, 131), broker_change(3)):
        cache.apply([change])
        seen.append(await offline())
    assert seen == [[], [3], []]


async def test_nothing_is_kept_of_a_deleted_topic(cache: MetadataCache) -> None:
    topics = TopicMetadata(cache)
    await metadata_of(topics)
    cache.apply([Changed(TOPIC_KEY, None, 132)])
    assert (await metadata_of(topics)).HasField("error")
    assert not topics._messages


async def test_added_and_removed_partitions_are_reported(cache: MetadataCache) -> None:
    topics = TopicMetadata(cache)
    counts = [len((await metadata_of(topics)).partitions)]
    cache.apply([topic_change(partitions=3), partition_change(state(), 140, on(2))])
    counts.append(len((await metadata_of(topics)).partitions))
    cache.apply([Changed(KEYS.leader_and_isr(on(2)), None, 141)])
    counts.append(len((await metadata_of(topics)).partitions))
    assert counts == [2, 3, 2]


async def test_a_partition_of_another_topic_of_the_name_is_left_out(cache: MetadataCache) -> None:
    topics = TopicMetadata(cache)
    await metadata_of(topics)
    other = replace(state(), topic_id="other-id-other-id-othe")
    cache.apply([partition_change(other, 140, OTHER)])
    assert [p.partition for p in (await metadata_of(topics)).partitions] == [0]


@pytest.mark.usefixtures("narrow_pieces")
async def test_a_wide_topic_is_answered_in_pieces_that_yield_in_between() -> None:
    known = MetadataCache(KEYS)
    known.apply(wide())
    async with Turns() as turns:
        partitions = (await metadata_of(TopicMetadata(known))).partitions
        assert turns.taken() >= 2
    assert [p.partition for p in partitions] == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("narrow_pieces")
async def test_an_answer_in_pieces_shows_one_moment() -> None:
    known = MetadataCache(KEYS)
    known.apply(wide(leader=1))
    topics = TopicMetadata(known)
    first = asyncio.create_task(metadata_of(topics))
    await asyncio.sleep(0)
    known.apply(wide(leader=2, revision=130))
    second = asyncio.create_task(metadata_of(topics))
    leaders = [[p.leader for p in (await answer).partitions] for answer in (first, second)]
    assert leaders == [[1] * 5, [2] * 5]


@pytest.mark.usefixtures("narrow_pieces")
async def test_a_topic_recreated_during_the_answer_is_reported_as_it_was() -> None:
    known = MetadataCache(KEYS)
    known.apply(wide())
    topics = TopicMetadata(known)
    answering = asyncio.create_task(metadata_of(topics))
    await asyncio.sleep(0)
    again = "other-id-other-id-othe"
    known.apply(wide(2, again, 140))
    previous, now = await answering, await metadata_of(topics)
    assert [(t.topic_id, {p.leader for p in t.partitions}) for t in (previous, now)] == [
        (TOPIC_ID, {1}),
        (again, {2}),
    ]
