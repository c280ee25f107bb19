"""Other brokers over gRPC."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TypeAlias

import grpc.aio

from tidelog.rpc.channels import open_channel
from tidelog.v1 import replica_pb2 as pb
from tidelog.v1 import replica_pb2_grpc
from tidelog_broker.edge import replica_codec
from tidelog_broker.replication.transport import (
    ANSWER_TIMEOUT_MS,
    PeerUnreachableError,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from tidelog_runtime.cancellation import is_being_cancelled

_Stream: TypeAlias = "grpc.aio.StreamStreamCall[pb.ReplicaFetchRequest, pb.ReplicaFetchResponse]"


class _Peer:
    """One leader. A fetch takes a stream that is idle, or opens one: there are as many as
    there were fetches at once."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel: grpc.aio.Channel = open_channel(address)
        self._stub: replica_pb2_grpc.ReplicaServiceAsyncStub = replica_pb2_grpc.ReplicaServiceStub(
            self._channel
        )
        self._idle: list[_Stream] = []

    async def ask(
        self, request: pb.ReplicaFetchRequest, timeout_s: float
    ) -> pb.ReplicaFetchResponse:
        """A stream is good for the next question only if this one has been answered:
        otherwise its answer would be taken for that of the next."""
        stream = self._idle.pop() if self._idle else self._stub.ReplicaFetch()
        try:
            async with asyncio.timeout(timeout_s):
                # A stream that has ended says why when it is read.
                with suppress(asyncio.InvalidStateError):
                    await stream.write(request)
                answer = await stream.read()
        except TimeoutError as error:
            stream.cancel()
            raise PeerUnreachableError(
                f"{self._address}: no answer within {timeout_s:g} s"
            ) from error
        except asyncio.InvalidStateError as error:
            raise PeerUnreachableError(f"{self._address}: the stream has ended") from error
        except grpc.aio.AioRpcError as error:
            raise PeerUnreachableError(f"{self._address}: {error.details()}") from error
        except asyncio.CancelledError as error:
            if not is_being_cancelled():
                # So gRPC ends the calls of a channel that is closed.
                raise PeerUnreachableError(f"{self._address}: the channel was closed") from error
            stream.cancel()
            raise
        if not isinstance(answer, pb.ReplicaFetchResponse):
            raise PeerUnreachableError(f"{self._address}: the stream was closed")
        self._idle.append(stream)
        return answer

    async def close(self) -> None:
        await self._channel.close()


class GrpcPeers:
    """Asks each leader as many questions at once as it has fetchers there."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer(address)
        answer = await peer.ask(
            await replica_codec.request_to_wire(request),
            (request.max_wait_ms + ANSWER_TIMEOUT_MS) / 1000,
        )
        return await replica_codec.response_from_wire(answer)

    async def close(self) -> None:
        peers, self._peers = self._peers, {}
        await asyncio.gather(*(peer.close() for peer in peers.values()))
