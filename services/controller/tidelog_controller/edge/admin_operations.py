"""AdminService, for operations.

Turns requests into events of the controller, and its replies into responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from tidelog_controller.edge.admin_calls import NO_ID, AdminCalls, error_of
from tidelog_controller.edge.caller_context import Context, caller_of, trace_of
from tidelog_controller.state.admin_answers import (
    MoveView,
    OperationAnswer,
    OperationMovesAnswer,
    OperationsAnswer,
    OperationView,
    PlanSummary,
    ThrottleAnswer,
)
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    BeginOperation,
    CancelOperation,
    DescribeOperation,
    DescribeThrottle,
    ListOperations,
    OtherFactor,
    Reassignment,
    Rebalancing,
    RemovedBrokers,
    RequestedOperation,
    RequestedReplicas,
    Reversal,
    SetThrottle,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.operation_registry import MoveState
from tidelog_runtime.metadata.operations import OperationKind, OperationMove, OperationState
from tidelog_runtime.turns import add_in_turns, in_turns

_KINDS = {
    OperationKind.REASSIGNMENT: pb.OPERATION_KIND_REASSIGNMENT,
    OperationKind.REBALANCE: pb.OPERATION_KIND_REBALANCE,
    OperationKind.BROKERS_ADD: pb.OPERATION_KIND_BROKERS_ADD,
    OperationKind.BROKERS_REMOVE: pb.OPERATION_KIND_BROKERS_REMOVE,
    OperationKind.SET_REPLICATION_FACTOR: pb.OPERATION_KIND_SET_REPLICATION_FACTOR,
    OperationKind.REVERSAL: pb.OPERATION_KIND_REVERSAL,
}
_STATES = {
    OperationState.RUNNING: pb.OPERATION_STATE_RUNNING,
    OperationState.CANCELLING: pb.OPERATION_STATE_CANCELLING,
    OperationState.DONE: pb.OPERATION_STATE_DONE,
    OperationState.CANCELLED: pb.OPERATION_STATE_CANCELLED,
    OperationState.FAILED: pb.OPERATION_STATE_FAILED,
}
_MOVE_STATES = {
    MoveState.WAITING: pb.MOVE_STATE_WAITING,
    MoveState.ACTIVE: pb.MOVE_STATE_ACTIVE,
    MoveState.DONE: pb.MOVE_STATE_DONE,
    MoveState.DROPPED: pb.MOVE_STATE_DROPPED,
}


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


class _BeginRequest(Protocol):
    """The fields of all requests that begin an operation."""

    @property
    def operation_id(self) -> str: ...

    @property
    def dry_run(self) -> bool: ...

    @property
    def expected_plan(self) -> str: ...


class OperationCalls(AdminCalls):
    async def Reassign(  # noqa: N802 - the generated name
        self, request: pb.ReassignRequest, context: Context
    ) -> pb.ReassignResponse:
        wanted = Reassignment(tuple(await in_turns(_wanted_replicas, request.moves)))
        reply = await self._begin(wanted, request, context)
        return await _with_plan(pb.ReassignResponse(), reply)

    async def Rebalance(  # noqa: N802 - the generated name
        self, request: pb.RebalanceRequest, context: Context
    ) -> pb.RebalanceResponse:
        wanted = Rebalancing()
        reply = await self._begin(wanted, request, context)
        return await _with_plan(pb.RebalanceResponse(), reply)

    async def AddBrokers(  # noqa: N802 - the generated name
        self, request: pb.AddBrokersRequest, context: Context
    ) -> pb.AddBrokersResponse:
        wanted = AddedBrokers(tuple(request.broker_ids))
        reply = await self._begin(wanted, request, context)
        return await _with_plan(pb.AddBrokersResponse(), reply)

    async def RemoveBrokers(  # noqa: N802 - the generated name
        self, request: pb.RemoveBrokersRequest, context: Context
    ) -> pb.RemoveBrokersResponse:
        wanted = RemovedBrokers(tuple(request.broker_ids))
        reply = await self._begin(wanted, request, context)
        return await _with_plan(pb.RemoveBrokersResponse(), reply)

    async def SetReplicationFactor(  # noqa: N802 - the generated name
        self, request: pb.SetReplicationFactorRequest, context: Context
    ) -> pb.SetReplicationFactorResponse:
        wanted = OtherFactor(tuple(request.topics), request.replication_factor)
        reply = await self._begin(wanted, request, context)
        return await _with_plan(pb.SetReplicationFactorResponse(), reply)

    async def ReverseOperation(  # noqa: N802 - the generated name
        self, request: pb.ReverseOperationRequest, context: Context
    ) -> pb.ReverseOperationResponse:
        wanted = Reversal(request.reversed_operation_id)
        reply = await self._begin(wanted, request, context)
        return await _with_plan(pb.ReverseOperationResponse(), reply)

    async def CancelOperation(  # noqa: N802 - the generated name
        self, request: pb.CancelOperationRequest, context: Context
    ) -> pb.CancelOperationResponse:
        reply = await self._submit(
            CancelOperation(
                NO_ID,
                request.operation_id,
                request.expected_revision,
                request.dry_run,
                trace_of(context),
                caller_of(context),
            ),
            context,
        )
        return await _with_plan(pb.CancelOperationResponse(), reply)

    async def ListOperations(  # noqa: N802 - the generated name
        self, request: pb.ListOperationsRequest, context: Context
    ) -> pb.ListOperationsResponse:
        try:
            states = _known("state", _STATES, request.states)
            kinds = _known("kind", _KINDS, request.kinds)
        except TidelogError as error:
            return pb.ListOperationsResponse(error=error_to_wire(error))
        reply = await self._submit(
            ListOperations(NO_ID, states, kinds, request.page_size, request.page_token), context
        )
        answer = reply.answer
        if not isinstance(answer, OperationsAnswer):
            return pb.ListOperationsResponse(error=error_of(reply))
        return pb.ListOperationsResponse(
            operations=await in_turns(_operation_to_wire, answer.operations),
            next_page_token=answer.next_page_token,
        )

    async def DescribeOperation(  # noqa: N802 - the generated name
        self, request: pb.DescribeOperationRequest, context: Context
    ) -> pb.DescribeOperationResponse:
        reply = await self._submit(
            DescribeOperation(NO_ID, request.operation_id, request.page_size, request.page_token),
            context,
        )
        answer = reply.answer
        if not isinstance(answer, OperationMovesAnswer):
            return pb.DescribeOperationResponse(error=error_of(reply))
        return pb.DescribeOperationResponse(
            operation=_operation_to_wire(answer.operation),
            moves=await in_turns(_progress_to_wire, answer.moves),
            next_page_token=answer.next_page_token,
        )

    async def SetThrottle(  # noqa: N802 - the generated name
        self, request: pb.SetThrottleRequest, context: Context
    ) -> pb.SetThrottleResponse:
        wire = request.throttle
        reply = await self._submit(
            SetThrottle(
                NO_ID,
                wire.bytes_per_second if wire.HasField("bytes_per_second") else None,
                request.expected_revision,
                request.dry_run,
                trace_of(context),
                caller_of(context),
            ),
            context,
        )
        answer = reply.answer
        if not isinstance(answer, ThrottleAnswer):
            return pb.SetThrottleResponse(error=error_of(reply))
        before = pb.Throttle(bytes_per_second=answer.before)
        return pb.SetThrottleResponse(before=before, revision=answer.revision)

    async def DescribeThrottle(  # noqa: N802 - the generated name
        self,
        request: pb.DescribeThrottleRequest,  # noqa: ARG002 - it asks for all there is
        context: Context,
    ) -> pb.DescribeThrottleResponse:
        reply = await self._submit(DescribeThrottle(NO_ID), context)
        answer = reply.answer
        if not isinstance(answer, ThrottleAnswer):
            return pb.DescribeThrottleResponse(error=error_of(reply))
        throttle = pb.Throttle(bytes_per_second=answer.bytes_per_second)
        return pb.DescribeThrottleResponse(throttle=throttle, revision=answer.revision)

    async def _begin(
        self,
        wanted: RequestedOperation,
        wire: _BeginRequest,
        context: Context,
    ) -> AdminReply:
        request = BeginOperation(
            NO_ID,
            wanted,
            wire.operation_id,
            wire.dry_run,
            trace_of(context),
            caller_of(context),
            wire.expected_plan,
        )
        return await self._submit(request, context)


_Known = TypeVar("_Known")


def _known(what: str, known: Mapping[_Known, int], asked: Iterable[int]) -> tuple[_Known, ...]:
    """Returns the values of a filter. Raises INVALID_REQUEST for an unknown value.

    An unknown value must not select everything.
    """
    by_wire = {wire: value for value, wire in known.items()}
    numbers = list(asked)
    unknown = [number for number in numbers if number not in by_wire]
    if unknown:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{unknown[0]} is no {what} of operations that this version knows; it knows "
            f"{sorted(by_wire)}, and all are listed without one",
        )
    return tuple(by_wire[number] for number in numbers)


def _wanted_replicas(wire: pb.Move) -> RequestedReplicas:
    return RequestedReplicas(
        TopicPartition(wire.topic, wire.partition),
        tuple(wire.target),
        tuple(wire.original),
        wire.topic_id,
    )


def _operation_to_wire(view: OperationView) -> pb.Operation:
    entry = view.entry
    return pb.Operation(
        operation_id=view.operation_id,
        kind=_KINDS[entry.kind],
        state=_STATES[entry.state],
        reason=entry.reason,
        request=entry.request,
        requested_by=entry.requested_by,
        requested_from=entry.requested_from,
        requested_at_ms=entry.requested_at_ms,
        ended_at_ms=entry.ended_at_ms,
        trace_id=entry.trace_id,
        progress=pb.OperationProgress(**view.progress._asdict()),
        revision=view.revision,
    )


async def _with_plan(response: _Planned, reply: AdminReply) -> _Planned:
    """Fills the message in place, since assigning a message copies it."""
    error, answer = error_of(reply), reply.answer
    if error is not None:
        response.error.CopyFrom(error)
    if not isinstance(answer, OperationAnswer):
        return response
    if answer.operation is not None:
        response.operation.CopyFrom(_operation_to_wire(answer.operation))
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
    wire.brokers.extend(pb.BrokerShare(**share._asdict()) for share in plan.brokers)
    wire.warnings.extend(plan.warnings)
    wire.digest = plan.digest
    await add_in_turns(wire.moves, _move_to_wire, plan.moves)


def _progress_to_wire(view: MoveView) -> pb.MoveProgress:
    return pb.MoveProgress(
        move=_move_to_wire(view.move),
        state=_MOVE_STATES[view.state],
        waits_for=view.waits_for,
        bytes_to_copy=view.bytes_to_copy,
        bytes_copied=view.bytes_copied,
    )


def _move_to_wire(move: OperationMove) -> pb.Move:
    return pb.Move(**move._asdict())
