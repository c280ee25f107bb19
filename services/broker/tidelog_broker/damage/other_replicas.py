"""What the metadata says about the other replicas of a damaged one."""

from __future__ import annotations

from tidelog.model import NO_LEADER, TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_runtime.metadata.schema import NOT_WHOLE, LeaderAndIsr


class OtherReplicas:
    """Uses the watch of the metadata store, which may be behind."""

    def __init__(self, cache: MetadataCache, broker_id: int) -> None:
        self._cache = cache
        self._broker_id = broker_id

    def are_none(self, key: ReplicaKey, name: TopicPartition | None) -> bool:
        """Returns whether the partition has only this replica."""
        state = self._state(key, name)
        return state is not None and tuple(state.replicas) == (self._broker_id,)

    def can_lead(self, key: ReplicaKey, name: TopicPartition | None) -> bool:
        """Returns whether another replica leads, or holds every committed record."""
        state = self._state(key, name)
        if state is None:
            return False
        if state.leader not in (NO_LEADER, self._broker_id):
            return True
        return any(
            member.broker_id != self._broker_id and member.broker_epoch != NOT_WHOLE
            for member in (*state.isr, *state.eligible)
        )

    def _state(self, key: ReplicaKey, name: TopicPartition | None) -> LeaderAndIsr | None:
        known = self._cache.state_of(name) if name is not None else None
        if known is None or known.state.topic_id != key.topic_id:
            return None
        return known.state


def leads_alone(partition: Partition) -> bool:
    """Returns whether it leads and no other replica is known to hold all that is committed.

    If it resigned, the partition would have no leader until an unclean election. Followers keep
    what they have, and a leader copies what it cannot read from those that join its ISR."""
    leading, state = partition.leading, partition.state
    if leading is None or leading.proposed is not None or state is None:
        return False
    members = (*state.isr, *state.eligible)
    return {m.broker_id for m in members if m.broker_epoch != NOT_WHOLE} == {state.leader}
