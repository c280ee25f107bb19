"""Topics as Metadata answers tell them. After a failover many clients ask at once for topics of
many partitions, so what was made of a topic is kept, and of its partitions only those are made anew
that are others now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.errors import unknown_topic
from tidelog.inspection.model import NOT_KNOWN
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import broker_pb2 as pb
from tidelog_broker.membership.metadata_cache import LiveTopic, MetadataCache, VersionedState
from tidelog_runtime.metadata.schema import LeaderAndIsr


@dataclass(slots=True)
class _Made:
    """What is answered of one topic, as of `known`, which is by the place in the answer."""

    of: LiveTopic
    known: list[tuple[int, VersionedState]]
    answer: pb.TopicMetadata


class TopicMetadata:
    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._live: frozenset[int] = frozenset()
        # By topic, bounded by the topics that there are.
        self._made: dict[str, _Made] = {}

    def of(self, topic: str) -> pb.TopicMetadata:
        """With an error: there is no such topic. It is good until the next call."""
        live = self._cache.topics.get(topic)
        if live is None:
            self._made.pop(topic, None)
            return pb.TopicMetadata(name=topic, error=error_to_wire(unknown_topic(topic)))
        self._heed_who_is_alive()
        states = self._cache.partitions.get(topic, {})
        made = self._made.get(topic)
        if made is None or not self._renew(made, live, states):
            made = self._made[topic] = self._make(topic, live, states)
        return made.answer

    def without_partitions(self, topic: str) -> pb.TopicMetadata:
        """The topic's own entry: what a client needs to see whether its partitions changed."""
        live = self._cache.topics.get(topic)
        if live is None:
            return pb.TopicMetadata(name=topic, error=error_to_wire(unknown_topic(topic)))
        return _of_topic(topic, live)

    def _make(self, topic: str, live: LiveTopic, states: Mapping[int, VersionedState]) -> _Made:
        entry = live.entry
        known = [
            (number, state)
            for number, state in sorted(states.items())
            # Not of a former topic, nor being removed.
            if state.state.topic_id == entry.topic_id and number < entry.partitions
        ]
        answer = _of_topic(topic, live)
        tell = _Telling(self._live)
        for number, state in known:
            tell(answer.partitions.add(), number, state)
        return _Made(live, known, answer)

    def _renew(self, made: _Made, live: LiveTopic, states: Mapping[int, VersionedState]) -> bool:
        """Brings what was made up to date; False: it has to be made anew, for it is of another
        topic, or of other partitions."""
        if made.of is not live or len(made.known) != len(states):
            return False
        tell = _Telling(self._live)
        for place, (number, known) in enumerate(made.known):
            now = states.get(number)
            if now is known:
                continue
            if now is None or now.state.topic_id != live.entry.topic_id:
                return False
            made.known[place] = number, now
            tell(made.answer.partitions[place], number, now)
        return True

    def _heed_who_is_alive(self) -> None:
        if self._live != self._cache.brokers.keys():
            self._live = frozenset(self._cache.brokers)
            for made in self._made.values():
                for (_, known), partition in zip(made.known, made.answer.partitions, strict=True):
                    offline = [b for b in known.state.replicas if b not in self._live]
                    if offline or partition.offline_replicas:
                        partition.offline_replicas[:] = offline
        if len(self._made) > len(self._cache.topics):
            self._made = {t: m for t, m in self._made.items() if t in self._cache.topics}


class _Telling:
    """What was decided together shares its state, of which most is made once then."""

    def __init__(self, live: frozenset[int]) -> None:
        self._live = live
        self._state: LeaderAndIsr | None = None
        self._told = pb.PartitionMetadata()

    def __call__(self, told: pb.PartitionMetadata, number: int, known: VersionedState) -> None:
        if known.state is not self._state:
            self._state = known.state
            self._told = _of_state(known.state, self._live)
        told.CopyFrom(self._told)
        told.partition = number
        told.create_revision = known.create_revision


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
