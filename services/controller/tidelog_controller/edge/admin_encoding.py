"""Responses of AdminService, from the controller's answers."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.message_codec import number_of, to_wire
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1 import errors_pb2
from tidelog_controller.policies.restart_check import Effect
from tidelog_controller.state.admin_answers import (
    BrokerView,
    ConfigAnswer,
    LeaderResult,
    LeadersAnswer,
    MoveView,
    OperationAnswer,
    OperationView,
    PartitionsAnswer,
    PlanSummary,
    RecoveryView,
    SurvivorView,
    TopicView,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.known import Partition
from tidelog_runtime.cooperative import QUICK_ITEMS_PER_SLICE, extend_yielding, map_yielding
from tidelog_runtime.metadata.operations import OperationMove
from tidelog_runtime.metadata.schema import RUNNING

_Planned = TypeVar(
    "_Planned",
    pb.ReassignResponse,
    pb.RebalanceResponse,
    pb.AddBrokersResponse,
    pb.RemoveBrokersResponse,
    pb.SetReplicationFactorResponse,
    pb.ReverseOperationResponse,
    pb.CancelOperationResponse,
)


def error_of(reply: AdminReply) -> errors_pb2.Error | None:
    return error_to_wire(reply.error) if reply.error else None


def recovered_partition(result: tuple[int, TidelogError | None]) -> pb.RecoverPartitionResult:
    partition, error = result
    return pb.RecoverPartitionResult(
        partition=partition, error=error_to_wire(error) if error else None
    )


def config_changes(answer: ConfigAnswer) -> list[pb.ConfigChange]:
    return [to_wire(change, pb.ConfigChange) for change in answer.changes]


async def add_assignment(
    response: pb.CreateTopicResponse | pb.AddPartitionsResponse, answer: PartitionsAnswer
) -> None:
    await extend_yielding(
        response.assignment,
        lambda replicas: pb.ReplicaAssignment(replicas=replicas),
        answer.assignment,
        QUICK_ITEMS_PER_SLICE,
    )


async def describe_topic(wire: pb.TopicDetails, view: TopicView) -> None:
    """Fills the message in place, since assigning a message copies it.

    Yields after each topic; the topics of a page have at most one page of partitions in total.
    """
    entry = view.entry
    wire.topic = view.name
    wire.topic_id = entry.topic_id
    wire.partition_count = entry.partitions
    wire.replication_factor = entry.replication_factor
    wire.config.extend(to_wire(entry, pb.ConfigEntry) for entry in view.config)
    wire.revision = view.revision
    wire.deleting = view.deleting
    wire.partitions_being_removed = view.partitions_being_removed
    wire.internal = view.internal
    await extend_yielding(wire.partitions, lambda each: _partition(*each), view.partitions)
    await asyncio.sleep(0)


def _partition(number: int, held: Partition | None) -> pb.PartitionDetails:
    if held is None:
        return pb.PartitionDetails(
            partition=number, leader=-1, leader_epoch=-1, unclean_leader_epoch=-1
        )
    state, moving = held.state, held.state.moving
    return pb.PartitionDetails(
        partition=number,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=[member.broker_id for member in state.isr],
        eligible=[member.broker_id for member in state.eligible],
        min_isr=state.min_isr,
        revision=held.revision,
        move=None
        if moving is None
        else pb.PartitionMove(
            operation_id=moving.operation, original=moving.original, target=moving.target
        ),
        unclean_leader_epoch=state.unclean_leader_epoch,
    )


def recovery(view: RecoveryView) -> pb.RecoveryDetails:
    return pb.RecoveryDetails(
        topic=view.name.topic,
        topic_id=view.held.state.topic_id,
        partition=view.name.partition,
        revision=view.held.revision,
        last_known=view.last_known,
        waits_for=view.waits_for,
        replicas=[_survivor(survivor) for survivor in view.survivors],
    )


def _survivor(view: SurvivorView) -> pb.ReplicaSurvivor:
    log = view.log
    if log is None:
        return pb.ReplicaSurvivor(broker_id=view.broker_id, problem=view.problem, last_epoch=-1)
    return pb.ReplicaSurvivor(
        broker_id=view.broker_id,
        described=True,
        last_epoch=log.epochs[-1][0] if log.epochs else -1,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark if log.high_watermark >= 0 else None,
        whole=view.whole,
        lost_records=view.lost_records if view.lost_records >= 0 else None,
    )


def broker(view: BrokerView) -> pb.BrokerDetails:
    registration, departure = view.registration, view.departure
    status, address, rack = pb.BROKER_STATUS_GONE, "", ""
    if registration is not None:
        address, rack = registration.address, registration.rack
        running = registration.state == RUNNING
        status = pb.BROKER_STATUS_RUNNING if running else pb.BROKER_STATUS_STOPPING
    elif departure is not None:
        address = departure.address
    gone = registration is None and departure is not None
    return pb.BrokerDetails(
        broker_id=view.broker_id,
        status=status,
        address=address,
        rack=rack,
        broker_epoch=view.broker_epoch,
        maintenance=view.maintenance,
        removed=view.removed,
        replicas=view.replicas,
        leaders=view.leaders,
        preferred_leaders=view.preferred_leaders,
        out_of_sync=view.out_of_sync,
        moves_in=view.moves_in,
        moves_out=view.moves_out,
        gone_at_ms=departure.at_ms if gone and departure is not None else 0,
        not_added=view.not_added,
    )


def operation(view: OperationView) -> pb.Operation:
    entry = view.entry
    return pb.Operation(
        operation_id=view.operation_id,
        kind=number_of(pb.OperationKind.DESCRIPTOR, entry.kind),
        state=number_of(pb.OperationState.DESCRIPTOR, entry.state),
        reason=entry.reason,
        request=entry.request,
        requested_by=entry.requested_by,
        requested_from=entry.requested_from,
        requested_at_ms=entry.requested_at_ms,
        ended_at_ms=entry.ended_at_ms,
        trace_id=entry.trace_id,
        progress=to_wire(view.progress, pb.OperationProgress),
        revision=view.revision,
    )


async def with_plan(response: _Planned, reply: AdminReply) -> _Planned:
    """Fills the message in place, since assigning a message copies it."""
    error, answer = error_of(reply), reply.answer
    if error is not None:
        response.error.CopyFrom(error)
    if not isinstance(answer, OperationAnswer):
        return response
    if answer.operation is not None:
        response.operation.CopyFrom(operation(answer.operation))
    if answer.plan is not None:
        await _add_plan(response.plan, answer.plan)
    return response


async def _add_plan(wire: pb.Plan, plan: PlanSummary) -> None:
    wire.SetInParent()
    wire.move_count = plan.move_count
    wire.replicas_added = plan.replicas_added
    wire.leaders_changed = plan.leaders_changed
    if plan.minimum is not None:
        wire.minimum_replicas_added = plan.minimum
    wire.brokers.extend(to_wire(share, pb.BrokerShare) for share in plan.brokers)
    wire.warnings.extend(plan.warnings)
    wire.digest = plan.digest
    await extend_yielding(wire.moves, _move_to_wire, plan.moves)


def move_progress(view: MoveView) -> pb.MoveProgress:
    return pb.MoveProgress(
        move=_move_to_wire(view.move),
        state=number_of(pb.MoveState.DESCRIPTOR, view.state),
        waits_for=view.waits_for,
        bytes_to_copy=view.bytes_to_copy,
        bytes_copied=view.bytes_copied,
    )


def _move_to_wire(move: OperationMove) -> pb.Move:
    return pb.Move(**move._asdict())


def restart_finding(found: tuple[TopicPartition, Effect, str]) -> pb.RestartFinding:
    name, effect, reason = found
    return pb.RestartFinding(
        topic=name.topic,
        partition=name.partition,
        effect=number_of(pb.RestartEffect.DESCRIPTOR, effect.name.lower()),
        reason=reason,
    )


async def leader_results(reply: AdminReply) -> list[pb.LeaderResult]:
    answer = reply.answer
    if not isinstance(answer, LeadersAnswer):
        return []
    return await map_yielding(_result, answer.results)


def _result(result: LeaderResult) -> pb.LeaderResult:
    name, before, leader, error = result
    return pb.LeaderResult(
        topic=name.topic,
        partition=name.partition,
        leader_before=before,
        leader=leader,
        error=error_to_wire(error) if error else None,
    )
