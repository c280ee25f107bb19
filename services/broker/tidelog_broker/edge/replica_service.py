"""ReplicaService: fetches of followers from this broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeAlias

import grpc.aio

from tidelog.v1 import replica_pb2 as pb
from tidelog.v1 import replica_pb2_grpc
from tidelog_broker.core.fetch_messages import FetchName
from tidelog_broker.edge import replica_codec
from tidelog_broker.metrics.request_meter import ReplicaFetchCall

# Makes a waiting fetch complete at once.
Hurry: TypeAlias = Callable[[FetchName], None]
_Requests: TypeAlias = AsyncIterator[pb.ReplicaFetchRequest]
_Context: TypeAlias = "grpc.aio.ServicerContext[pb.ReplicaFetchRequest, pb.ReplicaFetchResponse]"


@dataclass(slots=True)
class _Turn:
    """The state of one stream.

    Its task must not be cancelled while gRPC writes an answer: it would end without a status, and
    the call would stay open until the server's grace period is over."""

    serving: asyncio.Task[object]
    may_be_cut_short: bool = False
    is_hurried: bool = False


class ReplicaService(replica_pb2_grpc.ReplicaServiceServicer):
    def __init__(
        self, replica_fetch: ReplicaFetchCall, hurry: Hurry, stopped: asyncio.Event
    ) -> None:
        self._replica_fetch = replica_fetch
        self._hurry = hurry
        self._stopped = stopped

    async def ReplicaFetch(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.ReplicaFetchRequest],
        context: _Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.ReplicaFetchResponse]:
        """Ends when the follower does, and at once when this broker stops: a follower without a
        request keeps its stream open.

        The next request is read while one is served, because it may be a hurry message."""
        serving = asyncio.current_task()
        assert serving is not None
        turn = _Turn(serving)
        ending = asyncio.create_task(self._end_when_stopped(turn))
        requests = aiter(request_iterator)
        coming = asyncio.create_task(self._next(requests, turn))
        try:
            while not self._stopped.is_set():
                turn.may_be_cut_short = True
                request = await coming
                if request is None:
                    return
                turn.is_hurried = False
                coming = asyncio.create_task(self._next(requests, turn))
                response = await self._answer(request, turn)
                turn.may_be_cut_short = False
                yield response
        except asyncio.CancelledError:
            if not self._stopped.is_set():
                raise
            serving.uncancel()
        finally:
            ending.cancel()
            coming.cancel()
            coming.add_done_callback(_let_go)

    async def _end_when_stopped(self, turn: _Turn) -> None:
        await self._stopped.wait()
        if turn.may_be_cut_short:
            turn.serving.cancel()

    async def _next(self, requests: _Requests, turn: _Turn) -> pb.ReplicaFetchRequest | None:
        """Returns None after the last request."""
        async for request in requests:
            if not request.hurry:
                return request
            turn.is_hurried = True
            self._hurry(replica_codec.hurry_from_wire(request))
        return None

    async def _answer(
        self, request: pb.ReplicaFetchRequest, turn: _Turn
    ) -> pb.ReplicaFetchResponse:
        decoded = await replica_codec.request_from_wire(request)
        if turn.is_hurried:
            # The hurry message arrived while this request was decoded.
            decoded = decoded._replace(max_wait_ms=0)
        response = await self._replica_fetch(decoded)
        return await replica_codec.response_to_wire(response)


def _let_go(reading: asyncio.Task[pb.ReplicaFetchRequest | None]) -> None:
    """Retrieves the exception, which is not needed any more."""
    if not reading.cancelled():
        reading.exception()
