"""What is to be written next of one partition. Pure: reads the context, changes nothing.

Everything an intent needs follows from what the store holds, so that another controller
can go on at any point: a topic without a deletion gets its missing partitions and good
leaders, and one that is to be moved takes the next step of that; a topic with one gets its
partitions stopped, then their keys deleted.
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
from tidelog_controller.state.admin_requests import Asker
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
    """`is_acknowledged`: whether every live broker with a replica has carried out what
    the partition's present state asks of it. `logs`: what is known of the replicas' logs
    as they are at the partition's present revision. `reporters`: the brokers that cannot
    reach its leader, where it may be deposed for that. `disk_fails`: why the leader's disk
    rejects the log, where the leadership may be transferred for that."""
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
    # A consent is good for one election, whichever it turns out to be.
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
    """Another replica leads, because the leader's disk rejects the log."""
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
    """To another leader, because somebody wants it or the present one is in maintenance."""
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
    asker = Asker(wanted.requested_by, wanted.requested_from)
    return PartitionWrite(
        partition,
        state,
        new,
        held.revision,
        why=wanted.cause,
        trace_id=wanted.trace_id,
        asker=asker,
    )


def logs_needed(context: Context, partition: TopicPartition) -> tuple[int, ...]:
    """The brokers that are to be asked about their logs before the partition can be
    decided."""
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
    """Waits for more brokers (None) where some have gone since the topic was created."""
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
    """By hand, or else where they are placed; empty: there are too few brokers.

    No broker gets one that was removed since it was chosen. Where partitions were removed once, a
    broker that is away may hold a replica of a former one of this number, and would take it for
    this one: it gets none either."""
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
        # The revision of this write is what StopReplica is ordered by.
        stopped = replace(
            held.state,
            leader=NO_LEADER,
            leader_epoch=held.state.leader_epoch + 1,
            controller_epoch=controller_epoch,
            isr=(),
            eligible=(),
            # All of its replicas are stopped, those that were adding, too.
            moving=None,
        )
        return PartitionWrite(partition, held.state, stopped, held.revision)
    if is_acknowledged(partition) and context.is_outlived(partition):
        return PartitionWrite(partition, held.state, None, held.revision)
    return None
