"""Partition keys that only their leaders report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.inspection.model import InSyncMember, PartitionKeyState, ServiceState
from tidelog.model import NO_EPOCH


def keys_of_leaders(brokers: Mapping[int, ServiceState]) -> Iterator[PartitionKeyState]:
    """Yields keys from the states of leaders. No service reports the key of a healthy partition, so
    that these lack the order of preference and the min ISR."""
    for broker_id, state in brokers.items():
        assert state.broker is not None
        for replica in state.broker.replicas:
            if replica.leader is None:
                continue
            followers = replica.leader.followers
            lives = [(f.broker_id, f.broker_epoch) for f in followers if f.in_isr]
            members = [(broker_id, state.broker.broker_epoch), *lives]
            yield PartitionKeyState(
                replica.topic,
                replica.topic_id,
                replica.partition,
                (broker_id, *(f.broker_id for f in followers)),
                broker_id,
                replica.leader_epoch,
                tuple(InSyncMember(*member) for member in members),
                (),
                min_isr=0,
                unclean_leader_epoch=NO_EPOCH,
                revision=replica.revision,
            )
