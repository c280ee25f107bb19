"""The next write of a partition. Pure: reads the context, changes nothing.

Everything that an intent needs follows from the content of the store, so that another controller
can continue at any point. A topic without a deletion gets its missing partitions and leaders, and
its partitions take the next step of their moves. A topic with a deletion gets its partitions
stopped, then their keys deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.policies.electability import is_running
from tidelog_controller.policies.failing_disk import led_from_another_disk
from tidelog_controller.policies.leader_election import leader_serves, next_state
from tidelog_controller.policies.leader_moves import (
    WantedLeader,
    in_place_of,
    led_by_another,
)
from tidelog_controller.policies.placement import place, start_of
from tidelog_controller.policies.reassignment import next_move_step
from tidelog_controller.policies.recovery import Logs, needs_descriptions, records_given_up
from tidelog_controller.state.admin_requests import Caller
from tidelog_controller.state.context import Context
from tidelog_controller.state.known import Partition, Topic
from tidelog_controller.state.purposes import PartitionWrite
from tidelog_runtime.metadata.schema import unassigned


def next_write(
    context: Context,
    partition: TopicPartition,
    is_acknowledged: Callable[[TopicPartition], bool],
    controller_epoch: int,
    logs: Logs,
    reporters: Collection[int],
    disk_fails: Cause | None = None,
) -> PartitionWrite | None:
    """Returns the next write of a partition, or None if nothing has to be written now.

    - `is_acknowledged`: whether all live brokers with a replica carried out the current state.
    - `logs`: what is known of the replicas' logs, as they are at the current revision.
    - `reporters`: the brokers that cannot reach the leader, if it may be deposed for that.
    - `disk_fails`: why the leader's disk rejects its log, if leadership may leave for that.
    """
    topic = context.topics.get(partition.topic)
    if topic is None or context.keys.leader_and_isr(partition) in context.malformed:
        return None
    held = context.partition(partition)
    if context.is_going(partition):
        if held is None:
            return None
        return _deletion_step(context, partition, held, is_acknowledged, controller_epoch)
    if partition.partition >= topic.entry.partitions:
        return None
    if held is None or held.state.topic_id != topic.entry.topic_id:
        return _first_write(context, partition, topic, held, controller_epoch)
    consent = context.consents.get(partition)
    entry = consent.entry if consent else None
    new = next_state(
        held.state,
        context.live,
        controller_epoch,
        topic.rules,
        logs=logs,
        consent=entry,
        reporters=reporters,
        in_maintenance=context.maintenance,
    )
    if new is None:
        moved = next_move_step(
            held.state,
            context.live,
            controller_epoch,
            context.wanted_moves.get(partition),
            topic.config.min_isr,
        )
        if moved is not None:
            return PartitionWrite(partition, held.state, moved, held.revision)
        return (
            disk_fails and _left_disk(context, partition, held, topic, controller_epoch, disk_fails)
        ) or _handed_over(context, partition, held, topic, controller_epoch)
    # A consent is valid for a single election, whatever its kind.
    elected = new.leader_epoch > held.state.leader_epoch and new.leader != NO_LEADER
    consumed = consent.revision if consent and elected else 0
    deposes = elected and leader_serves(held.state, context.live)
    unclean = elected and new.unclean_leader_epoch == new.leader_epoch
    if unclean:
        lost = records_given_up(held.state, new.leader, logs)
        new = replace(new, unclean_lost_records=lost)
    return PartitionWrite(
        partition,
        held.state,
        new,
        held.revision,
        consumed,
        deposes,
        logs if unclean else None,
    )


def _left_disk(
    context: Context,
    partition: TopicPartition,
    held: Partition,
    topic: Topic,
    controller_epoch: int,
    cause: Cause,
) -> PartitionWrite | None:
    """Transfers leadership, because the leader's disk rejects the log."""
    new = led_from_another_disk(
        held.state,
        context.live,
        topic.rules,
        controller_epoch,
        context.rejecting_disks,
        context.maintenance,
    )
    if new is None:
        return None
    return PartitionWrite(partition, held.state, new, held.revision, why=cause, leaves_disk=True)


def _handed_over(
    context: Context,
    partition: TopicPartition,
    held: Partition,
    topic: Topic,
    controller_epoch: int,
) -> PartitionWrite | None:
    """Transfers leadership to a requested leader, or away from a broker in maintenance."""
    state, live = held.state, context.live
    wanted = context.wanted_leaders.get(partition)
    if wanted is None or wanted.leader in context.maintenance:
        successor = in_place_of(state, live, topic.rules, context.maintenance)
        if successor is None:
            return None
        wanted = WantedLeader(successor, False, Cause.MAINTENANCE)
    new = led_by_another(state, live, topic.rules, controller_epoch, wanted)
    if new is None:
        return None
    caller = Caller(wanted.requested_by, wanted.requested_from)
    return PartitionWrite(
        partition,
        state,
        new,
        held.revision,
        why=wanted.cause,
        trace_id=wanted.trace_id,
        caller=caller,
    )


def logs_needed(context: Context, partition: TopicPartition) -> tuple[int, ...]:
    """The brokers whose logs have to be described before the partition can be decided."""
    topic = context.topics.get(partition.topic)
    held = context.partition(partition)
    if topic is None or held is None or context.is_going(partition):
        return ()
    if held.state.topic_id != topic.entry.topic_id:
        return ()
    if partition in context.looked_at and held.state.leader == NO_LEADER:
        return tuple(b for b in held.state.replicas if is_running(b, context.live))
    consent = context.consents.get(partition)
    entry = consent.entry if consent else None
    return needs_descriptions(held.state, context.live, topic.rules, entry)


def _first_write(
    context: Context,
    partition: TopicPartition,
    topic: Topic,
    held: Partition | None,
    controller_epoch: int,
) -> PartitionWrite | None:
    """Assigns replicas and elects the first leader of a partition.

    None: it waits for more brokers, because some have left since the topic was created, or because
    none of the chosen ones runs.
    """
    replicas = _chosen_replicas(context, partition, topic)
    if not replicas:
        return None
    state = unassigned(topic.entry, replicas, topic.min_isr)
    new = next_state(
        state,
        context.live,
        controller_epoch,
        topic.rules,
        in_maintenance=context.maintenance,
    )
    if new is None:
        return None
    new = replace(new, leader_epoch=topic.entry.first_leader_epoch)
    return PartitionWrite(partition, None, new, held.revision if held else 0)


def _chosen_replicas(context: Context, partition: TopicPartition, topic: Topic) -> tuple[int, ...]:
    """Returns the replicas that a request named, or else the placement. Empty: too few brokers.

    No broker gets a replica that was removed since it was chosen. After a removal of partitions, an
    absent broker may hold a replica of a removed partition with this number, and would mistake it
    for this one. So it gets none either.
    """
    addition = context.additions.get(partition.topic)
    if addition is not None and addition.entry.topic_id == topic.entry.topic_id:
        by_hand = addition.entry.replicas_of(partition.partition)
        taken_out = [
            b
            for b in by_hand
            if b in context.removed_brokers or (topic.entry.shrunk and b not in context.live)
        ]
        if by_hand and not taken_out:
            return by_hand
    brokers = context.racked(context.placement_brokers())
    factor = topic.entry.replication_factor
    if not 1 <= factor <= len(brokers):
        return ()
    return place(partition.partition, factor, brokers, start_of(topic.entry.topic_id))


def _deletion_step(
    context: Context,
    partition: TopicPartition,
    held: Partition,
    is_acknowledged: Callable[[TopicPartition], bool],
    controller_epoch: int,
) -> PartitionWrite | None:
    if not context.is_stopped(partition):
        # StopReplica is ordered by the revision of this write.
        stopped = replace(
            held.state,
            leader=NO_LEADER,
            leader_epoch=held.state.leader_epoch + 1,
            controller_epoch=controller_epoch,
            isr=(),
            eligible=(),
            # All replicas are stopped, including those that were being added.
            moving=None,
        )
        return PartitionWrite(partition, held.state, stopped, held.revision)
    if is_acknowledged(partition) and context.is_outlived(partition):
        return PartitionWrite(partition, held.state, None, held.revision)
    return None
