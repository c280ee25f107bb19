"""Builds the commands to one broker from the state at the moment of sending."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.model import TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Change
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.control.log_descriptions import Descriptions
from tidelog_controller.control.move_progress_probe import MoveProgressProbe
from tidelog_controller.state.commands import (
    SendDescribeReplicas,
    SendLeaderAndIsr,
    SendStopReplica,
)
from tidelog_controller.state.context import Context, ControllerIdentity
from tidelog_runtime.replica_control import (
    DescribeReplicasCommand,
    LeaderAddress,
    LeaderAndIsrCommand,
    PartitionCommand,
    StopPartition,
    StopReplicaCommand,
)


def full_state_command(
    context: Context,
    identity: ControllerIdentity,
    control: BrokerControl,
    command_id: int,
    wall_ms: int,
) -> SendLeaderAndIsr | None:
    """Builds the command that names every replica of the broker.

    It leaves out replicas that are to be stopped, which follow in commands of their own. It also
    leaves out topics that cannot be read; the broker must not take their replicas for strays.
    """
    partitions = [
        partition
        for partition, _ in context.replicas_on(control.broker_id)
        if not context.is_stopped(partition)
    ]
    change = control.full_state_change(identity.controller_epoch, command_id, wall_ms)
    return _leader_and_isr(context, identity, control, command_id, partitions, change)


def next_command(
    context: Context,
    identity: ControllerIdentity,
    control: BrokerControl,
    command_id: int,
    now_ms: int,
) -> SendLeaderAndIsr | SendStopReplica | None:
    stops, partitions = control.due(lambda p: is_stop(context, p, control.broker_id), now_ms)
    if not partitions:
        return None
    if stops:
        return _stop_replica(context, identity, control, command_id, partitions)
    return _leader_and_isr(context, identity, control, command_id, partitions)


def is_stop(context: Context, partition: TopicPartition, broker_id: int) -> bool:
    """Whether the broker has to stop its replica, because of a deletion or a move."""
    held = context.partition(partition)
    moved_away = held is not None and broker_id not in held.state.replicas
    return moved_away or context.is_stopped(partition)


def description_command(
    identity: ControllerIdentity,
    control: BrokerControl,
    descriptions: Descriptions,
    command_id: int,
    now_ms: int,
) -> SendDescribeReplicas | None:
    """Requests the descriptions of the broker's logs that are still missing."""
    partitions = descriptions.due(control, now_ms)
    if not partitions:
        return None
    descriptions.mark_sent(control, command_id, partitions)
    return _describe_replicas(identity, control, command_id, partitions)


def measuring_command(
    identity: ControllerIdentity,
    control: BrokerControl,
    move_progress: MoveProgressProbe,
    command_id: int,
) -> SendDescribeReplicas | None:
    """Requests the missing progress of moves of partitions that the broker leads."""
    partitions = move_progress.due(control)
    if not partitions:
        return None
    move_progress.mark_sent(control, command_id, partitions)
    return _describe_replicas(identity, control, command_id, partitions)


def _describe_replicas(
    identity: ControllerIdentity,
    control: BrokerControl,
    command_id: int,
    partitions: Sequence[tuple[str, int]],
) -> SendDescribeReplicas:
    command = DescribeReplicasCommand(
        controller_id=identity.controller_id,
        controller_epoch=identity.controller_epoch,
        broker_epoch=control.broker_epoch,
        partitions=partitions,
    )
    return SendDescribeReplicas(control.broker_id, command_id, command)


def _leader_and_isr(
    context: Context,
    identity: ControllerIdentity,
    control: BrokerControl,
    command_id: int,
    partitions: Iterable[TopicPartition],
    full_state_change: Change | None = None,
) -> SendLeaderAndIsr | None:
    """`full_state_change`: None: the command is not a full state."""
    full_state = full_state_change is not None
    commands: list[PartitionCommand] = []
    leaders: dict[int, LeaderAddress] = {}
    for partition in partitions:
        held = context.partition(partition)
        topic = context.topics.get(partition.topic)
        if held is None or topic is None or held.state.topic_id != topic.entry.topic_id:
            # Left over from a deleted topic: nothing is requested from a broker. Or the topic
            # cannot be read: a log must not be opened without its configuration.
            control.forget(partition)
            continue
        state = held.state
        config, config_revision = topic.entry.config, topic.revision
        commands.append(PartitionCommand(partition, state, held.revision, config, config_revision))
        leader = context.brokers.get(state.leader)
        if leader is not None:
            leaders[state.leader] = LeaderAddress(leader.registration.address, leader.broker_epoch)
    if not commands and not full_state:
        return None
    unreadable = context.unreadable_topics() if full_state else ()
    named = {(c.state.topic_id, c.partition.partition): c.partition for c in commands}
    control.sent(command_id, named, stops=False, full_state=full_state)
    command = LeaderAndIsrCommand(
        controller_id=identity.controller_id,
        controller_epoch=identity.controller_epoch,
        broker_epoch=control.broker_epoch,
        full_state=full_state,
        partitions=commands,
        leaders=leaders,
        store_revision=context.revision,
        change=full_state_change or NO_CHANGE,
        unreadable_topics=tuple(sorted(unreadable)),
    )
    return SendLeaderAndIsr(control.broker_id, command_id, command)


def _stop_replica(
    context: Context,
    identity: ControllerIdentity,
    control: BrokerControl,
    command_id: int,
    partitions: Iterable[TopicPartition],
) -> SendStopReplica:
    stops: list[StopPartition] = []
    for partition in partitions:
        held = context.partition(partition)
        if held is not None:
            stops.append(
                StopPartition(
                    partition,
                    held.state.topic_id,
                    held.state.leader_epoch,
                    held.revision,
                    delete=True,
                    change=held.state.change,
                )
            )
    named = {(s.topic_id, s.partition.partition): s.partition for s in stops}
    control.sent(command_id, named, stops=True)
    command = StopReplicaCommand(
        controller_id=identity.controller_id,
        controller_epoch=identity.controller_epoch,
        broker_epoch=control.broker_epoch,
        partitions=stops,
    )
    return SendStopReplica(control.broker_id, command_id, command)
