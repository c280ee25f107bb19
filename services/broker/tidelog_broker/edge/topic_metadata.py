"""Topics as Metadata answers tell them. After a failover many clients ask at once for topics of
many partitions, so what was made of a partition is kept until it, or who is alive, is another."""

from __future__ import annotations

from tidelog.errors import unknown_topic
from tidelog.inspection.model import NOT_KNOWN
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import broker_pb2 as pb
from tidelog_broker.membership.metadata_cache import MetadataCache, VersionedState

_Made = dict[int, tuple[VersionedState, pb.PartitionMetadata]]


class TopicMetadata:
    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._live: frozenset[int] = frozenset()
        # By topic, bounded by the topics that there are.
        self._made: dict[str, _Made] = {}

    def of(self, topic: str) -> pb.TopicMetadata:
        """With an error: there is no such topic."""
        live = self._cache.topics.get(topic)
        if live is None:
            self._made.pop(topic, None)
            return pb.TopicMetadata(name=topic, error=error_to_wire(unknown_topic(topic)))
        self._forget_outdated()
        entry = live.entry
        before = self._made.get(topic, {})
        made: _Made = {}
        for number, known in sorted(self._cache.partitions.get(topic, {}).items()):
            if known.state.topic_id != entry.topic_id or number >= entry.partitions:
                continue  # of a former topic, or being removed
            kept = before.get(number)
            made[number] = (
                kept
                if kept is not None and kept[0] is known
                else (known, _partition(number, known, self._live))
            )
        self._made[topic] = made
        return pb.TopicMetadata(
            name=topic,
            topic_id=entry.topic_id,
            partitions=[message for _, message in made.values()],
            config=dict(entry.config),
            replication_factor=entry.replication_factor,
            partition_count=entry.partitions,
            create_revision=live.create_revision,
            revision=live.revision,
        )

    def _forget_outdated(self) -> None:
        if self._live != self._cache.brokers.keys():
            self._live = frozenset(self._cache.brokers)
            self._made.clear()
        elif len(self._made) > len(self._cache.topics):
            self._made = {t: m for t, m in self._made.items() if t in self._cache.topics}


def _partition(number: int, known: VersionedState, live: frozenset[int]) -> pb.PartitionMetadata:
    state = known.state
    return pb.PartitionMetadata(
        partition=number,
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
        create_revision=known.create_revision,
    )
