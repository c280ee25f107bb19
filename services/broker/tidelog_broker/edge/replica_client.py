"""Other brokers over gRPC."""

from __future__ import annotations

import asyncio

import grpc.aio

from tidelog.rpc.channels import open_channel
from tidelog.v1 import replica_pb2_grpc
from tidelog_broker.edge import replica_codec
from tidelog_broker.transport import (
    PeerUnreachableError,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)

# Beyond the long poll itself: how long an answer may take.
ANSWER_TIMEOUT_S = 5.0


class GrpcPeers:
    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address)
        stub: replica_pb2_grpc.ReplicaServiceAsyncStub = replica_pb2_grpc.ReplicaServiceStub(
            channel
        )
        try:
            response = await stub.ReplicaFetch(
                replica_codec.request_to_wire(request),
                timeout=request.max_wait_ms / 1000 + ANSWER_TIMEOUT_S,
            )
        except grpc.aio.AioRpcError as error:
            raise PeerUnreachableError(f"{address}: {error.details()}") from error
        return replica_codec.response_from_wire(response)

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close() for channel in channels.values()))
