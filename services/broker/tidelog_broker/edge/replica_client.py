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


class _Peer:
    """The stub is kept as well: making one costs as much as a call."""

    def __init__(self, address: str) -> None:
        self.channel: grpc.aio.Channel = open_channel(address)
        self.stub: replica_pb2_grpc.ReplicaServiceAsyncStub = replica_pb2_grpc.ReplicaServiceStub(
            self.channel
        )


class GrpcPeers:
    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer(address)
        try:
            response = await peer.stub.ReplicaFetch(
                replica_codec.request_to_wire(request),
                timeout=request.max_wait_ms / 1000 + ANSWER_TIMEOUT_S,
            )
        except grpc.aio.AioRpcError as error:
            raise PeerUnreachableError(f"{address}: {error.details()}") from error
        return replica_codec.response_from_wire(response)

    async def close(self) -> None:
        peers, self._peers = self._peers, {}
        await asyncio.gather(*(peer.channel.close() for peer in peers.values()))
