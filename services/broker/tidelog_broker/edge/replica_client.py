"""The gRPC client for other brokers."""

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
    FetchId,
    PeerUnreachableError,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from tidelog_runtime.cooperative import is_being_cancelled

# Short, so that a leader that has restarted at another address is soon tried there.
REACH_TIMEOUT_S = 1.0

_Stream: TypeAlias = "grpc.aio.StreamStreamCall[pb.ReplicaFetchRequest, pb.ReplicaFetchResponse]"


class _Fetch:
    """A fetch in flight."""

    def __init__(self) -> None:
        # Done when the request is written to its stream.
        self.sent: asyncio.Future[_Stream] = asyncio.get_running_loop().create_future()
        self.completing_early: asyncio.Task[None] | None = None

    def complete_early(self, message: pb.ReplicaFetchRequest) -> None:
        if self.completing_early is None:
            self.completing_early = asyncio.create_task(self._complete_early(message))

    async def _complete_early(self, message: pb.ReplicaFetchRequest) -> None:
        await _write(await self.sent, message)

    def end(self) -> None:
        if self.completing_early is not None:
            self.completing_early.cancel()


async def _write(stream: _Stream, message: pb.ReplicaFetchRequest) -> None:
    """Ignores that a stream has ended: reading it raises the reason."""
    with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
        await stream.write(message)


class _Peer:
    """One leader. A fetch takes an idle stream, or opens one: there are as many as concurrent
    fetches."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel: grpc.aio.Channel = open_channel(address)
        self._stub: replica_pb2_grpc.ReplicaServiceAsyncStub = replica_pb2_grpc.ReplicaServiceStub(
            self._channel
        )
        self._idle: list[_Stream] = []
        self._in_flight: dict[FetchId, _Fetch] = {}

    async def fetch(
        self, request: ReplicaFetchRequest, timeout_s: float
    ) -> pb.ReplicaFetchResponse:
        name, fetch = request.name, _Fetch()
        self._in_flight[name] = fetch
        try:
            return await self._exchange(
                fetch, await replica_codec.request_to_wire(request), timeout_s
            )
        finally:
            self._in_flight.pop(name, None)
            fetch.end()

    async def reach(self) -> None:
        """Opens the stream for the next fetch unless one is idle."""
        if self._idle:
            return
        stream = self._stub.ReplicaFetch()
        try:
            async with asyncio.timeout(REACH_TIMEOUT_S):
                await stream.wait_for_connection()
        except TimeoutError as error:
            stream.cancel()
            raise PeerUnreachableError(
                f"{self._address}: no connection within {REACH_TIMEOUT_S:g} s"
            ) from error
        except grpc.aio.AioRpcError as error:
            raise PeerUnreachableError(f"{self._address}: {error.details()}") from error
        except asyncio.CancelledError as error:
            stream.cancel()
            if not is_being_cancelled():
                raise PeerUnreachableError(f"{self._address}: the channel was closed") from error
            raise
        self._idle.append(stream)

    def complete_early(self, request: ReplicaFetchRequest) -> None:
        fetch = self._in_flight.get(request.name)
        if fetch is not None:
            fetch.complete_early(replica_codec.early_completion_to_wire(request))

    async def _exchange(
        self, fetch: _Fetch, request: pb.ReplicaFetchRequest, timeout_s: float
    ) -> pb.ReplicaFetchResponse:
        """Sends a request and returns its answer.

        A stream is used again only after its request was answered. Otherwise that answer would be
        taken for the next one."""
        stream = self._idle.pop() if self._idle else self._stub.ReplicaFetch()
        try:
            async with asyncio.timeout(timeout_s):
                await _write(stream, request)
                fetch.sent.set_result(stream)
                answer = await stream.read()
                if fetch.completing_early is not None:
                    await self._await_early_completion(fetch.completing_early, stream, answer)
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
                # gRPC ends the calls of a closed channel in this way.
                raise PeerUnreachableError(f"{self._address}: the channel was closed") from error
            stream.cancel()
            raise
        if not isinstance(answer, pb.ReplicaFetchResponse):
            raise PeerUnreachableError(f"{self._address}: the stream was closed")
        self._idle.append(stream)
        return answer

    async def _await_early_completion(
        self, completing_early: asyncio.Task[None], stream: _Stream, answer: object
    ) -> None:
        """Reads the answer of an older leader that takes the hurry message for a late request."""
        await completing_early
        if isinstance(answer, pb.ReplicaFetchResponse) and not answer.takes_hurry:
            await stream.read()

    async def close(self) -> None:
        await self._channel.close()


class GrpcPeers:
    """Sends fetches to other brokers, as many at once to each as there are fetchers for it."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}

    def _peer(self, address: str) -> _Peer:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer(address)
        return peer

    async def reach(self, address: str) -> None:
        await self._peer(address).reach()

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse:
        timeout_s = (request.max_wait_ms + ANSWER_TIMEOUT_MS) / 1000
        answer = await self._peer(address).fetch(request, timeout_s)
        return await replica_codec.response_from_wire(answer)

    def complete_early(self, address: str, request: ReplicaFetchRequest) -> None:
        peer = self._peers.get(address)
        if peer is not None:
            peer.complete_early(request)

    async def close(self) -> None:
        peers, self._peers = self._peers, {}
        await asyncio.gather(*(peer.close() for peer in peers.values()))
