"""ReplicaService: fetches of followers from this broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeAlias

import grpc.aio

from tidelog.v1 import replica_pb2 as pb
from tidelog.v1 import replica_pb2_grpc
from tidelog_broker.edge import replica_codec
from tidelog_broker.metrics.request_meter import ReplicaFetchCall
from tidelog_broker.replication.transport import FetchId

# Makes a waiting fetch complete at once.
CompleteEarly: TypeAlias = Callable[[FetchId], None]
_Requests: TypeAlias = AsyncIterator[pb.ReplicaFetchRequest]
_Context: TypeAlias = "grpc.aio.ServicerContext[pb.ReplicaFetchRequest, pb.ReplicaFetchResponse]"


@dataclass(slots=True)
class _StreamState:
    """The state of one stream.

    Its task must not be cancelled while gRPC writes an answer: it would end without a status, and
    the call would stay open until the server's grace period is over."""

    serving: asyncio.Task[object]
    may_be_cut_short: bool = False
    is_completed_early: bool = False


class ReplicaService(replica_pb2_grpc.ReplicaServiceServicer):
    def __init__(
        self, replica_fetch: ReplicaFetchCall, complete_early: CompleteEarly, stopped: asyncio.Event
    ) -> None:
        self._replica_fetch = replica_fetch
        self._complete_early = complete_early
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
        state = _StreamState(serving)
        ending = asyncio.create_task(self._end_when_stopped(state))
        requests = aiter(request_iterator)
        coming = asyncio.create_task(self._next(requests, state))
        try:
            while not self._stopped.is_set():
                state.may_be_cut_short = True
                request = await coming
                if request is None:
                    return
                state.is_completed_early = False
                coming = asyncio.create_task(self._next(requests, state))
                response = await self._answer(request, state)
                state.may_be_cut_short = False
                yield response
        except asyncio.CancelledError:
            if not self._stopped.is_set():
                raise
            serving.uncancel()
        finally:
            ending.cancel()
            coming.cancel()
            coming.add_done_callback(_retrieve_exception)

    async def _end_when_stopped(self, state: _StreamState) -> None:
        await self._stopped.wait()
        if state.may_be_cut_short:
            state.serving.cancel()

    async def _next(
        self, requests: _Requests, state: _StreamState
    ) -> pb.ReplicaFetchRequest | None:
        """Returns None after the last request."""
        async for request in requests:
            if not request.hurry:
                return request
            state.is_completed_early = True
            self._complete_early(replica_codec.early_completion_from_wire(request))
        return None

    async def _answer(
        self, request: pb.ReplicaFetchRequest, state: _StreamState
    ) -> pb.ReplicaFetchResponse:
        decoded = await replica_codec.request_from_wire(request)
        if state.is_completed_early:
            # The hurry message arrived while this request was decoded.
            decoded = decoded._replace(max_wait_ms=0)
        response = await self._replica_fetch(decoded)
        return await replica_codec.response_to_wire(response)


def _retrieve_exception(reading: asyncio.Task[pb.ReplicaFetchRequest | None]) -> None:
    """Retrieves the exception, which is not needed any more."""
    if not reading.cancelled():
        reading.exception()
