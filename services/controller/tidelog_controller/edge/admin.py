"""AdminService: turns requests into events of the controller, and its replies into responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.message_codec import from_wire, readers_of, to_wire, words_of
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1.admin_pb2_grpc import AdminServiceServicer
from tidelog_controller.edge import admin_encoding as encoding
from tidelog_controller.edge.admin_encoding import error_of
from tidelog_controller.edge.caller_context import Context, caller_of, trace_of
from tidelog_controller.policies.restart_check import Effect
from tidelog_controller.state import admin_requests as requests
from tidelog_controller.state import events
from tidelog_controller.state.admin_answers import (
    BrokersAnswer,
    ConfigAnswer,
    LeadersAnswer,
    LevelAnswer,
    OperationMovesAnswer,
    OperationsAnswer,
    PartitionsAnswer,
    RecoveryAnswer,
    RestartAnswer,
    ThrottleAnswer,
    TopicsAnswer,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_runtime.cooperative import (
    ITEMS_PER_SLICE,
    QUICK_ITEMS_PER_SLICE,
    extend_yielding,
    map_yielding,
)
from tidelog_runtime.external_addresses import ExternalAddresses
from tidelog_runtime.metadata.operations import OperationKind, OperationState

MAX_WAITING_REQUESTS = 1_000

# The event loop assigns the id.
NO_ID = 0

_Value = TypeVar("_Value")


class Admin(Protocol):
    async def submit(self, request: events.AdminRequest) -> AdminReply: ...


class AdminServicer(AdminServiceServicer):
    """The complete service. The number of requests that wait for a reply is limited."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._waiting = 0

    # Topics.

    async def CreateTopic(  # noqa: N802 - the generated name
        self, request: pb.CreateTopicRequest, context: Context
    ) -> pb.CreateTopicResponse:
        reply = await self._change(events.CreateTopic, request, context)
        response = pb.CreateTopicResponse(
            error=error_of(reply), topic_id=reply.topic_id, pending_brokers=reply.pending_brokers
        )
        await encoding.add_assignment(response, _partitions_answer(reply))
        return response

    async def DeleteTopic(  # noqa: N802 - the generated name
        self, request: pb.DeleteTopicRequest, context: Context
    ) -> pb.DeleteTopicResponse:
        reply = await self._change(events.DeleteTopic, request, context)
        plan = _partitions_answer(reply)
        return pb.DeleteTopicResponse(
            error=error_of(reply),
            pending_brokers=reply.pending_brokers,
            partitions=plan.partitions,
            brokers=plan.brokers,
        )

    async def AlterTopicConfig(  # noqa: N802 - the generated name
        self, request: pb.AlterTopicConfigRequest, context: Context
    ) -> pb.AlterTopicConfigResponse:
        changed = dict(request.set)
        reply = await self._change(requests.AlterTopicConfig, request, context, changed=changed)
        answer = reply.answer if isinstance(reply.answer, ConfigAnswer) else ConfigAnswer()
        return pb.AlterTopicConfigResponse(
            error=error_of(reply),
            changes=encoding.config_changes(answer),
            revision=answer.revision,
            pending_brokers=reply.pending_brokers,
        )

    async def AddPartitions(  # noqa: N802 - the generated name
        self, request: pb.AddPartitionsRequest, context: Context
    ) -> pb.AddPartitionsResponse:
        reply = await self._change(requests.AddPartitions, request, context)
        answer = _partitions_answer(reply)
        response = pb.AddPartitionsResponse(
            error=error_of(reply),
            added=answer.partitions,
            pending_brokers=reply.pending_brokers,
            revision=answer.revision,
        )
        await encoding.add_assignment(response, answer)
        return response

    async def RemovePartitions(  # noqa: N802 - the generated name
        self, request: pb.RemovePartitionsRequest, context: Context
    ) -> pb.RemovePartitionsResponse:
        reply = await self._change(requests.RemovePartitions, request, context)
        answer = _partitions_answer(reply)
        return pb.RemovePartitionsResponse(
            error=error_of(reply),
            removed=answer.partitions,
            pending_brokers=reply.pending_brokers,
            revision=answer.revision,
            brokers=answer.brokers,
        )

    async def DescribeTopics(  # noqa: N802 - the generated name
        self, request: pb.DescribeTopicsRequest, context: Context
    ) -> pb.DescribeTopicsResponse:
        reply = await self._read(requests.DescribeTopics, request, context)
        answer = reply.answer
        if not isinstance(answer, TopicsAnswer):
            return pb.DescribeTopicsResponse(error=error_of(reply))
        response = pb.DescribeTopicsResponse(next_page_token=answer.next_page_token)
        for view in answer.topics:
            await encoding.describe_topic(response.topics.add(), view)
        return response

    # Operations.

    async def Reassign(  # noqa: N802 - the generated name
        self, request: pb.ReassignRequest, context: Context
    ) -> pb.ReassignResponse:
        reply = await self._begin(requests.Reassignment, request, context)
        return await encoding.with_plan(pb.ReassignResponse(), reply)

    async def Rebalance(  # noqa: N802 - the generated name
        self, request: pb.RebalanceRequest, context: Context
    ) -> pb.RebalanceResponse:
        reply = await self._begin(requests.Rebalancing, request, context)
        return await encoding.with_plan(pb.RebalanceResponse(), reply)

    async def AddBrokers(  # noqa: N802 - the generated name
        self, request: pb.AddBrokersRequest, context: Context
    ) -> pb.AddBrokersResponse:
        reply = await self._begin(requests.AddedBrokers, request, context)
        return await encoding.with_plan(pb.AddBrokersResponse(), reply)

    async def RemoveBrokers(  # noqa: N802 - the generated name
        self, request: pb.RemoveBrokersRequest, context: Context
    ) -> pb.RemoveBrokersResponse:
        reply = await self._begin(requests.RemovedBrokers, request, context)
        return await encoding.with_plan(pb.RemoveBrokersResponse(), reply)

    async def SetReplicationFactor(  # noqa: N802 - the generated name
        self, request: pb.SetReplicationFactorRequest, context: Context
    ) -> pb.SetReplicationFactorResponse:
        reply = await self._begin(requests.OtherFactor, request, context)
        return await encoding.with_plan(pb.SetReplicationFactorResponse(), reply)

    async def ReverseOperation(  # noqa: N802 - the generated name
        self, request: pb.ReverseOperationRequest, context: Context
    ) -> pb.ReverseOperationResponse:
        reversed_ = request.reversed_operation_id
        reply = await self._begin(requests.Reversal, request, context, operation_id=reversed_)
        return await encoding.with_plan(pb.ReverseOperationResponse(), reply)

    async def CancelOperation(  # noqa: N802 - the generated name
        self, request: pb.CancelOperationRequest, context: Context
    ) -> pb.CancelOperationResponse:
        reply = await self._change(requests.CancelOperation, request, context)
        return await encoding.with_plan(pb.CancelOperationResponse(), reply)

    async def ListOperations(  # noqa: N802 - the generated name
        self, request: pb.ListOperationsRequest, context: Context
    ) -> pb.ListOperationsResponse:
        try:
            states = _known("state", OperationState, pb.OperationState, request.states)
            kinds = _known("kind", OperationKind, pb.OperationKind, request.kinds)
        except TidelogError as error:
            return pb.ListOperationsResponse(error=error_to_wire(error))
        reply = await self._read(
            requests.ListOperations, request, context, states=states, kinds=kinds
        )
        answer = reply.answer
        if not isinstance(answer, OperationsAnswer):
            return pb.ListOperationsResponse(error=error_of(reply))
        return pb.ListOperationsResponse(
            operations=await map_yielding(encoding.operation, answer.operations),
            next_page_token=answer.next_page_token,
        )

    async def DescribeOperation(  # noqa: N802 - the generated name
        self, request: pb.DescribeOperationRequest, context: Context
    ) -> pb.DescribeOperationResponse:
        reply = await self._read(requests.DescribeOperation, request, context)
        answer = reply.answer
        if not isinstance(answer, OperationMovesAnswer):
            return pb.DescribeOperationResponse(error=error_of(reply))
        return pb.DescribeOperationResponse(
            operation=encoding.operation(answer.operation),
            moves=await map_yielding(encoding.move_progress, answer.moves),
            next_page_token=answer.next_page_token,
        )

    async def SetThrottle(  # noqa: N802 - the generated name
        self, request: pb.SetThrottleRequest, context: Context
    ) -> pb.SetThrottleResponse:
        wire = request.throttle
        rate = wire.bytes_per_second if wire.HasField("bytes_per_second") else None
        reply = await self._change(requests.SetThrottle, request, context, bytes_per_second=rate)
        answer = reply.answer
        if not isinstance(answer, ThrottleAnswer):
            return pb.SetThrottleResponse(error=error_of(reply))
        before = pb.Throttle(bytes_per_second=answer.before)
        return pb.SetThrottleResponse(before=before, revision=answer.revision)

    async def DescribeThrottle(  # noqa: N802 - the generated name
        self, request: pb.DescribeThrottleRequest, context: Context
    ) -> pb.DescribeThrottleResponse:
        reply = await self._read(requests.DescribeThrottle, request, context)
        answer = reply.answer
        if not isinstance(answer, ThrottleAnswer):
            return pb.DescribeThrottleResponse(error=error_of(reply))
        throttle = pb.Throttle(bytes_per_second=answer.bytes_per_second)
        return pb.DescribeThrottleResponse(throttle=throttle, revision=answer.revision)

    async def RaiseFeatureLevel(  # noqa: N802 - the generated name
        self, request: pb.RaiseFeatureLevelRequest, context: Context
    ) -> pb.RaiseFeatureLevelResponse:
        reply = await self._change(requests.RaiseFeatureLevel, request, context)
        answer = reply.answer
        if not isinstance(answer, LevelAnswer):
            return pb.RaiseFeatureLevelResponse(error=error_of(reply))
        return pb.RaiseFeatureLevelResponse(before=answer.before, revision=answer.revision)

    async def DescribeFeatureLevel(  # noqa: N802 - the generated name
        self, request: pb.DescribeFeatureLevelRequest, context: Context
    ) -> pb.DescribeFeatureLevelResponse:
        reply = await self._read(requests.DescribeFeatureLevel, request, context)
        answer = reply.answer
        if not isinstance(answer, LevelAnswer):
            return pb.DescribeFeatureLevelResponse(error=error_of(reply))
        return pb.DescribeFeatureLevelResponse(
            level=answer.level,
            newest_level=answer.newest,
            revision=answer.revision,
            processes=[to_wire(process, pb.ProcessVersion) for process in answer.processes],
        )

    # Leaders and brokers.

    async def ElectPreferredLeaders(  # noqa: N802 - the generated name
        self, request: pb.ElectPreferredLeadersRequest, context: Context
    ) -> pb.ElectPreferredLeadersResponse:
        selectors = tuple(await map_yielding(_selector, request.partitions))
        reply = await self._change(
            requests.ElectPreferredLeaders, request, context, selectors=selectors
        )
        return pb.ElectPreferredLeadersResponse(
            error=error_of(reply), partitions=await encoding.leader_results(reply)
        )

    async def MoveLeaders(  # noqa: N802 - the generated name
        self, request: pb.MoveLeadersRequest, context: Context
    ) -> pb.MoveLeadersResponse:
        moves = tuple(await map_yielding(_leader_move, request.moves, QUICK_ITEMS_PER_SLICE))
        reply = await self._change(requests.MoveLeaders, request, context, moves=moves)
        return pb.MoveLeadersResponse(
            error=error_of(reply), partitions=await encoding.leader_results(reply)
        )

    async def SetMaintenance(  # noqa: N802 - the generated name
        self, request: pb.SetMaintenanceRequest, context: Context
    ) -> pb.SetMaintenanceResponse:
        reply = await self._change(requests.SetMaintenance, request, context)
        return pb.SetMaintenanceResponse(
            error=error_of(reply),
            leaders=await encoding.leader_results(reply),
            leaders_kept=reply.answer.kept if isinstance(reply.answer, LeadersAnswer) else 0,
        )

    async def CheckRestart(  # noqa: N802 - the generated name
        self, request: pb.CheckRestartRequest, context: Context
    ) -> pb.CheckRestartResponse:
        reply = await self._read(requests.CheckRestart, request, context)
        answer = reply.answer
        if not isinstance(answer, RestartAnswer):
            return pb.CheckRestartResponse(error=error_of(reply))
        return pb.CheckRestartResponse(
            safe=answer.safe,
            unavailable=answer.counts.get(Effect.UNAVAILABLE, 0),
            under_min_isr=answer.counts.get(Effect.UNDER_MIN_ISR, 0),
            last_replica=answer.counts.get(Effect.LAST_REPLICA, 0),
            leader_moves=answer.counts.get(Effect.LEADER_MOVES, 0),
            findings=await map_yielding(encoding.restart_finding, answer.findings),
            next_page_token=answer.next_page_token,
        )

    async def DescribeBrokers(  # noqa: N802 - the generated name
        self, request: pb.DescribeBrokersRequest, context: Context
    ) -> pb.DescribeBrokersResponse:
        reply = await self._read(requests.DescribeBrokers, request, context)
        answer = reply.answer
        if not isinstance(answer, BrokersAnswer):
            return pb.DescribeBrokersResponse(error=error_of(reply))
        return pb.DescribeBrokersResponse(
            brokers=await map_yielding(encoding.broker, answer.brokers)
        )

    # Recovery.

    async def DescribeRecovery(  # noqa: N802 - the generated name
        self, request: pb.DescribeRecoveryRequest, context: Context
    ) -> pb.DescribeRecoveryResponse:
        reply = await self._read(requests.DescribeRecovery, request, context)
        answer = reply.answer
        if not isinstance(answer, RecoveryAnswer):
            return pb.DescribeRecoveryResponse(error=error_of(reply))
        response = pb.DescribeRecoveryResponse(next_page_token=answer.next_page_token)
        await extend_yielding(response.partitions, encoding.recovery, answer.partitions)
        return response

    async def RecoverPartitions(  # noqa: N802 - the generated name
        self, request: pb.RecoverPartitionsRequest, context: Context
    ) -> pb.RecoverPartitionsResponse:
        reply = await self._change(events.RecoverPartitions, request, context)
        return pb.RecoverPartitionsResponse(
            error=error_of(reply),
            partitions=await map_yielding(encoding.recovered_partition, reply.partitions),
        )

    # What all calls share.

    async def _begin(
        self, wanted: type[Any], request: Message, context: Context, **given: object
    ) -> AdminReply:
        effect = await _decoded(request, wanted, **given)
        return await self._change(requests.BeginOperation, request, context, wanted=effect)

    async def _change(
        self, kind: type[Any], request: Message, context: Context, **given: object
    ) -> AdminReply:
        trace_id, caller = trace_of(context), caller_of(context)
        return await self._read(kind, request, context, trace_id=trace_id, caller=caller, **given)

    async def _read(
        self, kind: type[Any], request: Message, context: Context, **given: object
    ) -> AdminReply:
        """Submits a request, which the event loop numbers."""
        event = await _decoded(request, kind, request_id=NO_ID, **given)
        if self._waiting >= MAX_WAITING_REQUESTS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._waiting} requests are waiting already; try again later",
            )
        self._waiting += 1
        try:
            return await self._admin.submit(event)
        finally:
            self._waiting -= 1


class ExternalAdminServicer(AdminServicer):
    """The service for clients of `external_listen`: addresses of brokers are reachable for them."""

    def __init__(self, admin: Admin, addresses: ExternalAddresses) -> None:
        super().__init__(admin)
        self._addresses = addresses

    async def DescribeBrokers(  # noqa: N802 - the generated name
        self, request: pb.DescribeBrokersRequest, context: Context
    ) -> pb.DescribeBrokersResponse:
        response = await super().DescribeBrokers(request, context)
        for broker in response.brokers:
            broker.address = self._addresses.of_broker(broker.broker_id, broker.address)
        return response


async def _decoded(request: Message, kind: type[_Value], **given: object) -> _Value:
    """Returns the value with the request's fields. Reads long lists of it in slices."""
    for reader in readers_of(type(request), kind):
        if reader.read_item is not None and reader.name not in given:
            # Items that hold names and lists take longer than those of a few numbers.
            per_slice = ITEMS_PER_SLICE if reader.name == "moves" else QUICK_ITEMS_PER_SLICE
            items = await map_yielding(reader.read_item, reader.items_of(request), per_slice)
            given[reader.name] = tuple(items)
    return from_wire(request, kind, **given)


def _known(
    what: str, kind: Callable[[str], _Value], enum_type: Any, asked: Iterable[int]
) -> tuple[_Value, ...]:
    """Returns the values of a filter. Raises INVALID_REQUEST for an unknown value.

    An unknown value must not select everything.
    """
    words: Mapping[int, str] = words_of(enum_type.DESCRIPTOR)
    known = {number: kind(word) for number, word in words.items() if number}
    numbers = list(asked)
    unknown = [number for number in numbers if number not in known]
    if unknown:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{unknown[0]} is no {what} of operations that this version knows; it knows "
            f"{sorted(known)}, and all are listed without one",
        )
    return tuple([known[number] for number in numbers])


def _selector(wire: pb.PartitionSelector) -> requests.PartitionSelector:
    return requests.PartitionSelector(wire.topic, tuple(wire.partitions))


def _leader_move(wire: pb.LeaderMove) -> tuple[TopicPartition, int]:
    return TopicPartition(wire.topic, wire.partition), wire.leader


def _partitions_answer(reply: AdminReply) -> PartitionsAnswer:
    return reply.answer if isinstance(reply.answer, PartitionsAnswer) else PartitionsAnswer()
