"""Descriptions of the active controller's state for admin requests. Reads, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.errors import TidelogError, unknown_partition, unknown_topic
from tidelog.inspection.controller_reports import ServiceCrashes
from tidelog.inspection.state_reports import (
    ControllerState,
    InSyncMember,
    PartitionKeyState,
    PartitionMoveState,
    RegisteredBroker,
    StandingOperation,
    StateRequest,
    WaitingDeletion,
)
from tidelog.inspection.state_reports import Departure as Departed
from tidelog.model import TopicPartition
from tidelog.state_changes.event import NO_REVISION
from tidelog_controller.control.command_dispatcher import CommandDispatcher
from tidelog_controller.policies.leader_election import is_leader_serving
from tidelog_controller.policies.reassignment import (
    is_cancelled,
    missing_for_cancellation,
    missing_for_switch,
)
from tidelog_controller.requests.level_admin import raisable_level
from tidelog_controller.state.context import Context, ControllerIdentity
from tidelog_controller.state.departures import crashes_of
from tidelog_controller.state.metadata_records import (
    Partition,
    Topic,
)
from tidelog_controller.state.operation_registry import Hindrance
from tidelog_runtime.departed_brokers import departed_brokers
from tidelog_runtime.metadata.operations import OperationState
from tidelog_runtime.metadata.schema import Departure, unassigned

# To describe a partition takes about 6 µs. To skip one takes about 1 µs, and slightly more for the
# only partition of a topic.
DESCRIBED_PER_SLICE = 200
SEEN_PER_SLICE = 1_000


class ControllerTerm(NamedTuple):
    """The knowledge of one controller term.

    - `deleting_since_ms`: by key, when unfinished deletions and removals were first seen.
    - `wall_ms`: the wall clock of the last event.
    """

    context: Context
    identity: ControllerIdentity
    dispatch: CommandDispatcher
    departed: Mapping[int, Departure]
    deleting_since_ms: Mapping[str, int]
    wall_ms: int


def describe(term: ControllerTerm, request: StateRequest, now_ms: int) -> ControllerState:
    """Describes everything but the partitions, which `partitions_in_slices` describes."""
    context = term.context
    return ControllerState(
        active=True,
        controller_epoch=term.identity.controller_epoch,
        backlogs=tuple(term.dispatch.backlogs(now_ms, request)),
        departures=tuple(_departures(term)),
        crashes=tuple(_crashes(term)),
        deletions=tuple(_deletions(term, now_ms)),
        partition_count=context.partition_count,
        revision=context.revision,
        registered=tuple(_registered(context)),
        operations=tuple(_operations(context)),
        rejected_starts=context.directories.described_rejections(),
        pressures=context.directories.described_pressures(),
        in_maintenance=tuple(sorted(context.maintenance)),
        feature_level=context.levels.level,
        raisable_level=raisable_level(context),
    )


def not_found(context: Context, request: StateRequest) -> TidelogError | None:
    """The error for a topic or partition that does not exist; the controller has to be loaded."""
    topic, partition = request.topic, request.partition
    known = context.topics.get(topic)
    if not topic:
        return None
    if known is None:
        is_left_over = topic in context.deletions or bool(context.partitions_of(topic))
        return None if is_left_over else unknown_topic(topic)
    if partition is None or partition < known.entry.partitions:
        return None
    return unknown_partition(topic, partition, known.entry.partitions)


def _departures(term: ControllerTerm) -> Iterator[Departed]:
    context = term.context
    return departed_brokers(
        term.departed,
        context.brokers,
        lambda broker_id: next(context.replicas_on(broker_id), None) is not None,
        term.wall_ms,
    )


def _crashes(term: ControllerTerm) -> Iterator[ServiceCrashes]:
    for broker_id, departure in sorted(term.departed.items()):
        series = crashes_of(departure)
        if not series.is_over(term.wall_ms):
            yield series.described("broker", broker_id, "", term.wall_ms)


def _deletions(term: ControllerTerm, now_ms: int) -> Iterator[WaitingDeletion]:
    context, controls = term.context, term.dispatch.controls
    for topic, removal in sorted(context.removals.items()):
        going = [p for p in context.partitions_of(topic) if context.is_being_deleted(p)]
        since_ms = term.deleting_since_ms.get(context.keys.partition_removal(topic), now_ms)
        if topic not in context.deletions:
            yield WaitingDeletion(
                topic,
                removal.entry.topic_id,
                now_ms - since_ms,
                tuple(b for b in sorted(controls) if any(map(controls[b].waits_for, going))),
                removal.entry.first,
            )
    for topic in sorted(term.context.deletions):
        waiting = [
            broker_id
            for broker_id in sorted(term.dispatch.controls)
            if term.dispatch.controls[broker_id].waits_for_topic(topic)
        ]
        yield WaitingDeletion(
            topic,
            term.context.deletions[topic].topic_id,
            now_ms - term.deleting_since_ms.get(context.keys.topic_deletion(topic), now_ms),
            tuple(waiting),
        )


def _operations(context: Context) -> Iterator[StandingOperation]:
    operations = context.operations
    for operation_id in sorted(operations.held):
        entry, work = operations.held[operation_id].entry, operations.work_of(operation_id)
        if work is None:
            continue
        hindered = operations.hindered(operation_id)
        states = (context.state_to_stay(partition) for partition in work.active)
        yield StandingOperation(
            operation_id,
            entry.kind.value,
            entry.state is OperationState.CANCELLING,
            len(work.moves) - len(work.active),
            len(work.active),
            work.done,
            hindered[Hindrance.NOT_READY],
            hindered[Hindrance.BUSY],
            sum(s is not None and not is_leader_serving(s, context.live) for s in states),
        )


def _registered(context: Context) -> Iterator[RegisteredBroker]:
    for broker_id, broker in sorted(context.brokers.items()):
        yield context.directories.describe(broker_id, broker.broker_epoch, broker.registration)


def partitions_in_slices(
    context: Context, request: StateRequest
) -> Iterator[list[PartitionKeyState]]:
    """Yields the requested partitions in slices, each of which takes a millisecond or two.

    A request selects partitions by name or by members of their ISR. Otherwise the partitions that
    are not healthy are described. A partition without replicas waits for as many running brokers as
    it is to have replicas. A slice may be empty.

    `context`: a snapshot if other code may run between two slices.
    """
    found: list[PartitionKeyState] = []
    for seen, key in enumerate(_partitions(context, request), 1):
        if key is not None:
            found.append(key)
        if len(found) == DESCRIBED_PER_SLICE or seen % SEEN_PER_SLICE == 0:
            yield found
            found = []
    yield found


def _partitions(context: Context, request: StateRequest) -> Iterator[PartitionKeyState | None]:
    """Yields None for a partition that is skipped."""
    named = bool(request.topic) and not request.only_unwell
    topics = [request.topic] if request.topic else context.topics
    for topic in sorted(topics):
        if topic in context.deletions and not named:
            # The description of the deletion says what it waits for.
            continue
        entry = context.topics.get(topic)
        partitions = context.held_of(topic)
        for number in sorted(partitions):
            partition, held = TopicPartition(topic, number), partitions[number]
            is_described = _is_described(context, partition, held, entry, request, named=named)
            yield _key_state(context, partition, held, entry) if is_described else None
        for number in context.unplaced.of(topic) if entry and not request.in_isr else ():
            if request.partition in (None, number):
                state = unassigned(context.topics[topic].entry, (), context.topics[topic].min_isr)
                partition = TopicPartition(topic, number)
                yield _key_state(context, partition, Partition(state, NO_REVISION), entry)


def _is_described(
    context: Context,
    partition: TopicPartition,
    held: Partition,
    topic: Topic | None,
    request: StateRequest,
    *,
    named: bool,
) -> bool:
    if request.partition not in (None, partition.partition):
        return False
    if topic is not None and held.state.topic_id != topic.entry.topic_id:
        return False  # Left over from a previous topic of this name.
    if context.is_being_deleted(partition) and not named:
        return False
    return _is_asked_for(held, request, named=named)


def _is_asked_for(held: Partition, request: StateRequest, *, named: bool) -> bool:
    """Whether the request selects this partition.

    The key of a paused leader looks healthy until its registration ends. A caller that knows of
    silent brokers requests the partitions whose ISR has them (`in_isr`).
    """
    if request.in_isr:
        return any(member.broker_id in request.in_isr for member in held.state.isr)
    return named or not is_healthy(held)


def is_healthy(held: Partition) -> bool:
    """Whether the partition is healthy according to its key.

    Its preferred replica leads, all replicas are in sync, no move is in progress, and the current
    leader epoch did not begin with an unclean election.
    """
    state = held.state
    return (
        state.leader == state.replicas[0]
        and len(state.isr) == len(state.replicas)
        and state.moving is None
        and state.unclean_leader_epoch != state.leader_epoch
    )


def _key_state(
    context: Context, partition: TopicPartition, held: Partition, topic: Topic | None
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
        lost_records=state.unclean_lost_records,
        recovery=topic.rules.recovery if topic else "balanced",
        unclean_leader_election=bool(topic and topic.rules.unclean_leader_election),
        synced=bool(topic and topic.rules.synced),
        move=_move_state(context, partition, held, topic),
        replication_factor=topic.entry.replication_factor if topic else 0,
        unclean_elected_at_ms=state.unclean_elected_at_ms,
    )


def _move_state(
    context: Context, partition: TopicPartition, held: Partition, topic: Topic | None
) -> PartitionMoveState | None:
    state = held.state
    if state.moving is None:
        return None
    cancelled = is_cancelled(state.moving, context.requested_moves.get(partition))
    if cancelled and topic is not None:
        min_isr = topic.config.min_isr(len(state.moving.original))
        waits_for = missing_for_cancellation(state, context.live, min_isr)
    else:
        waits_for = missing_for_switch(state, context.live)
    return PartitionMoveState(
        state.moving.operation, state.moving.original, state.moving.target, cancelled, waits_for
    )
