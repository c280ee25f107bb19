"""`ReplicaControl` over gRPC."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

import grpc
import grpc.aio

from tidelog.rpc.channels import open_channel
from tidelog.rpc.trace_context import of_trace
from tidelog.v1 import replica_control_pb2 as pb
from tidelog.v1.replica_control_pb2_grpc import ReplicaControlServiceStub
from tidelog_runtime.command_traces import shared_trace_id
from tidelog_runtime.replica_control import (
    BrokerUnreachableError,
    CommandResult,
    DescribeReplicasCommand,
    DescribeReplicasResult,
    LeaderAndIsrCommand,
    StopReplicaCommand,
)
from tidelog_runtime.replica_control_codec import (
    describe_replicas_result_from_wire,
    describe_replicas_to_wire,
    leader_and_isr_to_bytes,
    result_from_wire,
    stop_replica_to_wire,
)

LeaderAndIsrCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, pb.LeaderAndIsrResponse]"


class GrpcReplicaControl:
    """A `ReplicaControl` over one connection.

    Commands and the watch stream share it, so that its end ends both. A command whose changes
    belong to one trace also carries that trace in the call's metadata. `rng`: for span ids.
    """

    def __init__(self, address: str, command_timeout_ms: int, rng: random.Random) -> None:
        self._channel = open_channel(address)
        self._stub = ReplicaControlServiceStub(self._channel)
        # Like the stub's call, but for requests that are serialized already.
        self._leader_and_isr: LeaderAndIsrCall = self._channel.unary_unary(
            "/tidelog.v1.ReplicaControlService/LeaderAndIsr",
            response_deserializer=pb.LeaderAndIsrResponse.FromString,
        )
        self._timeout_seconds = command_timeout_ms / 1000
        self._rng = rng

    async def leader_and_isr(self, command: LeaderAndIsrCommand) -> CommandResult:
        try:
            answer = await self._leader_and_isr(
                await leader_and_isr_to_bytes(command),
                timeout=self._timeout_seconds,
                metadata=of_trace(shared_trace_id(command), self._rng),
            )
        except grpc.aio.AioRpcError as error:
            raise _unreachable(error) from error
        return await result_from_wire(answer)

    async def stop_replica(self, command: StopReplicaCommand) -> CommandResult:
        try:
            answer = await self._stub.StopReplica(
                await stop_replica_to_wire(command),
                timeout=self._timeout_seconds,
                metadata=of_trace(shared_trace_id(command), self._rng),
            )
        except grpc.aio.AioRpcError as error:
            raise _unreachable(error) from error
        return await result_from_wire(answer)

    async def describe_replicas(self, command: DescribeReplicasCommand) -> DescribeReplicasResult:
        try:
            answer = await self._stub.DescribeReplicas(
                await describe_replicas_to_wire(command), timeout=self._timeout_seconds
            )
        except grpc.aio.AioRpcError as error:
            raise _unreachable(error) from error
        return await describe_replicas_result_from_wire(answer)

    async def watch(
        self,
        controller_id: int,
        controller_epoch: int,
        broker_epoch: int,
        established: Callable[[], None],
    ) -> None:
        request = pb.WatchRequest(
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
        )
        try:
            async for _ in self._stub.Watch(request):
                established()
        except grpc.aio.AioRpcError:
            # The stream has ended for any reason; the dial that follows finds out what it means.
            return

    async def close(self) -> None:
        await self._channel.close()


def _unreachable(error: grpc.aio.AioRpcError) -> BrokerUnreachableError:
    return BrokerUnreachableError(f"{error.code().name}: {error.details()}")
