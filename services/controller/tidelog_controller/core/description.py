"""How a reigning controller stands, for those who ask. Pure: reads, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.model import (
    ControllerState,
    InSyncMember,
    PartitionKeyState,
    RegisteredBroker,
    StateRequest,
)
from tidelog.model import TopicPartition
from tidelog_controller.state.context import Broker, Context, ControllerIdentity, Partition, Topic


def describe(
    context: Context, identity: ControllerIdentity, request: StateRequest
) -> ControllerState:
    return ControllerState(
        active=True,
        controller_epoch=identity.controller_epoch,
        partitions=tuple(_partitions(context, request)),
        partition_count=context.partition_count,
        revision=context.revision,
        registered=tuple(_registered(context.brokers[b]) for b in sorted(context.brokers)),
    )


def _registered(broker: Broker) -> RegisteredBroker:
    registration = broker.registration
    return RegisteredBroker(
        broker.broker_id,
        broker.broker_epoch,
        registration.address,
        registration.state,
        registration.rack,
        registration.whole_since or broker.broker_epoch,
        registration.synced_whole_since or broker.broker_epoch,
    )


def _partitions(context: Context, request: StateRequest) -> Iterator[PartitionKeyState]:
    """Those that are asked for by name, and otherwise those that are not as they should be."""
    topics = [request.topic] if request.topic else context.topics
    for topic in sorted(topics):
        for partition in context.partitions_of(topic):
            if request.partition not in (None, partition.partition):
                continue
            held = context.partition(partition)
            if held is None:
                continue
            named = bool(request.topic) and not request.only_unwell
            if named or not is_well(held):
                yield _key_state(partition, held, context.topics.get(topic))


def is_well(held: Partition) -> bool:
    """Led by its preferred replica, with all replicas in sync, and without a loss that
    clients have yet to hear of."""
    state = held.state
    return (
        state.leader == state.replicas[0]
        and len(state.isr) == len(state.replicas)
        and state.unclean_leader_epoch != state.leader_epoch
    )


def _key_state(
    partition: TopicPartition, held: Partition, topic: Topic | None
) -> PartitionKeyState:
    state, change = held.state, held.state.change
    return PartitionKeyState(
        topic=partition.topic,
        topic_id=state.topic_id,
        partition=partition.partition,
        replicas=state.replicas,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(InSyncMember(*member) for member in state.isr),
        eligible=tuple(InSyncMember(*member) for member in state.eligible),
        min_isr=state.min_isr,
        unclean_leader_epoch=state.unclean_leader_epoch,
        revision=held.revision,
        change_id=change.id,
        change_cause=change.cause.value,
        changed_at_ms=change.requested_at_ms,
        recovery=topic.rules.recovery if topic else "balanced",
        unclean_leader_election=bool(topic and topic.rules.unclean_leader_election),
        synced=bool(topic and topic.rules.synced),
    )
