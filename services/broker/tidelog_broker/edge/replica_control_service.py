"""ReplicaControlService: commands of the controller to this broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc.aio

from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.abort import abort
from tidelog.rpc.trace_context import trace_id_of
from tidelog.v1 import replica_control_pb2 as pb
from tidelog.v1 import replica_control_pb2_grpc
from tidelog_broker.replicas.replica_commands import ReplicaCommands
from tidelog_runtime import replica_control_codec as codec
from tidelog_runtime.replica_control import CommandResult

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ReplicaControlService(replica_control_pb2_grpc.ReplicaControlServiceServicer):
    def __init__(
        self,
        commands: ReplicaCommands,
        stopped: asyncio.Event,
        known: codec.StateAt = lambda *_: None,
    ) -> None:
        """`known` is passed to `leader_and_isr_from_wire`."""
        self._commands = commands
        self._stopped = stopped
        self._known = known

    async def LeaderAndIsr(  # noqa: N802
        self,
        request: pb.LeaderAndIsrRequest,
        context: _Context,
    ) -> pb.LeaderAndIsrResponse:
        trace_id = _trace_id(context)
        # A fenced command costs no more than its parsing.
        head = await codec.with_trace_of_call(codec.leader_and_isr_head(request), trace_id)
        fenced = self._commands.fenced("leader_and_isr", head, len(request.partitions))
        if fenced is not None:
            return await codec.leader_and_isr_result_to_wire(CommandResult(error=fenced))
        command = await codec.with_trace_of_call(
            await codec.leader_and_isr_from_wire(request, self._known), trace_id
        )
        result = await self._commands.leader_and_isr(command)
        return await codec.leader_and_isr_result_to_wire(result)

    async def StopReplica(  # noqa: N802
        self,
        request: pb.StopReplicaRequest,
        context: _Context,
    ) -> pb.StopReplicaResponse:
        command = await codec.with_trace_of_call(
            await codec.stop_replica_from_wire(request), _trace_id(context)
        )
        result = await self._commands.stop_replica(command)
        return await codec.stop_replica_result_to_wire(result)

    async def DescribeReplicas(  # noqa: N802
        self,
        request: pb.DescribeReplicasRequest,
        context: _Context,  # noqa: ARG002
    ) -> pb.DescribeReplicasResponse:
        command = await codec.describe_replicas_from_wire(request)
        result = await self._commands.describe_replicas(command)
        return await codec.describe_replicas_result_to_wire(result, command.partitions)

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: _Context
    ) -> AsyncIterator[pb.WatchResponse]:
        """Ends only when this process ends or stops."""
        if request.broker_epoch < self._commands.broker_epoch:
            await abort(
                context,
                TidelogError(
                    ErrorCode.STALE_BROKER_EPOCH,
                    f"this is broker epoch {self._commands.broker_epoch}, not "
                    f"{request.broker_epoch}",
                ),
            )
        yield pb.WatchResponse(broker_epoch=self._commands.broker_epoch)
        await self._stopped.wait()


def _trace_id(context: _Context) -> str:
    return trace_id_of(context.invocation_metadata())
