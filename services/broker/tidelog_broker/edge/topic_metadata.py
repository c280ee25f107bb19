"""Topics in Metadata answers.

After a failover many clients request topics with many partitions at once. So the message of a topic
is kept, and only the partitions that have changed are built again. A large topic is built in
pieces, between which the event loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tidelog.errors import unknown_topic
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import broker_pb2 as pb
from tidelog_broker.membership.metadata_cache import LiveTopic, MetadataCache, VersionedState
from tidelog_runtime.metadata.schema import LeaderAndIsr

# The event loop is blocked for so many partitions of a topic. Building them takes a millisecond, or
# five if all states differ.
PARTITIONS_PER_PIECE = 500


class _PartitionSlice:
    """The message for some partitions of a topic."""

    __slots__ = ("_answer", "_known", "_live")

    def __init__(self) -> None:
        self._known: list[tuple[int, VersionedState]] = []
        self._live: frozenset[int] = frozenset()
        self._answer = pb.TopicMetadata()

    def of(
        self, known: list[tuple[int, VersionedState]], live: frozenset[int]
    ) -> Sequence[pb.PartitionMetadata]:
        """Returns the message, which is valid until the next call. `live`: the brokers that are
        alive."""
        if not self._renew(known, live):
            self._answer = pb.TopicMetadata()
            write = _PartitionWriter(live)
            for number, state in known:
                write(self._answer.partitions.add(), number, state)
        self._known, self._live = known, live
        return self._answer.partitions

    def _renew(self, known: list[tuple[int, VersionedState]], live: frozenset[int]) -> bool:
        """Updates the message. Returns False if it is for other partitions."""
        if len(self._known) != len(known):
            return False
        write, other_live = _PartitionWriter(live), live != self._live
        answers = self._answer.partitions
        for place, (before, now) in enumerate(zip(self._known, known, strict=True)):
            if now[1] is not before[1]:
                if now[0] != before[0]:
                    return False
                write(answers[place], *now)
            elif other_live:
                offline = [b for b in now[1].state.replicas if b not in live]
                if offline or answers[place].offline_replicas:
                    answers[place].offline_replicas[:] = offline
        return True


class _TopicMessages:
    """The messages of one topic. `of` is its id: another topic of the same name shares nothing with
    it."""

    __slots__ = ("of", "pieces")

    def __init__(self, of: str) -> None:
        self.of = of
        # By the first partition that each may have.
        self.pieces: dict[int, _PartitionSlice] = {}


class TopicMetadata:
    """Builds the topics of Metadata answers."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        # By topic; bounded by the number of topics.
        self._messages: dict[str, _TopicMessages] = {}

    async def add_to(self, answer: pb.MetadataResponse, topic: str) -> int:
        """Adds the topic as it is known when this is called; or an error if there is no such topic.

        Returns how many partitions were added without yielding to the event loop."""
        live = self._cache.topics.get(topic)
        if live is None:
            self._messages.pop(topic, None)
            answer.topics.append(self.without_partitions(topic))
            return 0
        self._forget_topics()
        partitions = live.entry.partitions
        states, brokers = self._cache.partitions.get(topic, {}), frozenset(self._cache.brokers)
        if partitions > PARTITIONS_PER_PIECE:
            states = dict(states)
        added = answer.topics.add()
        added.CopyFrom(_of_topic(topic, live))
        for first in range(0, partitions, PARTITIONS_PER_PIECE):
            if first:
                await asyncio.sleep(0)
            end = min(first + PARTITIONS_PER_PIECE, partitions)
            known = _known(states, live, first, end)
            added.partitions.extend(self._piece(topic, live, first).of(known, brokers))
        return min(partitions, PARTITIONS_PER_PIECE)

    def without_partitions(self, topic: str) -> pb.TopicMetadata:
        """Returns the topic's own entry, by which a client sees whether its partitions have
        changed."""
        live = self._cache.topics.get(topic)
        if live is None:
            return pb.TopicMetadata(name=topic, error=error_to_wire(unknown_topic(topic)))
        return _of_topic(topic, live)

    def _piece(self, topic: str, live: LiveTopic, first: int) -> _PartitionSlice:
        made = self._messages.get(topic)
        if made is None or made.of != live.entry.topic_id:
            made = _TopicMessages(live.entry.topic_id)
            if topic in self._cache.topics:
                self._messages[topic] = made
        return made.pieces.setdefault(first, _PartitionSlice())

    def _forget_topics(self) -> None:
        if len(self._messages) > len(self._cache.topics):
            self._messages = {t: m for t, m in self._messages.items() if t in self._cache.topics}


def _known(
    states: Mapping[int, VersionedState], live: LiveTopic, first: int, end: int
) -> list[tuple[int, VersionedState]]:
    """Leaves out the partitions of an earlier topic of this name."""
    return [
        (number, state)
        for number in range(first, end)
        if (state := states.get(number)) is not None and state.state.topic_id == live.entry.topic_id
    ]


class _PartitionWriter:
    """Fills messages of partitions. Partitions that were decided together share a state, most of
    which is built only once."""

    def __init__(self, live: frozenset[int]) -> None:
        self._live = live
        self._state: LeaderAndIsr | None = None
        self._written = pb.PartitionMetadata()

    def __call__(self, partition: pb.PartitionMetadata, number: int, known: VersionedState) -> None:
        if known.state is not self._state:
            self._state = known.state
            self._written = _of_state(known.state, self._live)
        partition.CopyFrom(self._written)
        partition.partition = number
        partition.create_revision = known.create_revision


def _of_topic(topic: str, live: LiveTopic) -> pb.TopicMetadata:
    entry = live.entry
    return pb.TopicMetadata(
        name=topic,
        topic_id=entry.topic_id,
        config=dict(entry.config),
        replication_factor=entry.replication_factor,
        partition_count=entry.partitions,
        create_revision=live.create_revision,
        revision=live.revision,
    )


def _of_state(state: LeaderAndIsr, live: frozenset[int]) -> pb.PartitionMetadata:
    return pb.PartitionMetadata(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=sorted(state.isr_ids),
        eligible_leader_replicas=[m.broker_id for m in state.eligible],
        offline_replicas=[b for b in state.replicas if b not in live],
        unclean_leader_epoch=state.unclean_leader_epoch,
        min_isr=state.min_isr,
        unclean_lost_records=(
            None if state.unclean_lost_records == NOT_KNOWN else state.unclean_lost_records
        ),
        moving_operation=state.moving.operation if state.moving else "",
        original_replicas=state.moving.original if state.moving else (),
        target_replicas=state.moving.target if state.moving else (),
    )
