"""ReplicaService: what followers ask of this broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeAlias

import grpc.aio

from tidelog.v1 import replica_pb2 as pb
from tidelog.v1 import replica_pb2_grpc
from tidelog_broker.edge import replica_codec
from tidelog_broker.metrics.request_meter import ReplicaFetchCall

_Context: TypeAlias = "grpc.aio.ServicerContext[pb.ReplicaFetchRequest, pb.ReplicaFetchResponse]"


@dataclass(slots=True)
class _Turn:
    """Of one stream. While gRPC writes an answer its task is not ours to cancel: it would
    end without a status, and the call stay open until the server's grace is over."""

    serving: asyncio.Task[object]
    may_be_cut_short: bool = False


class ReplicaService(replica_pb2_grpc.ReplicaServiceServicer):
    def __init__(self, replica_fetch: ReplicaFetchCall, stopped: asyncio.Event) -> None:
        self._replica_fetch = replica_fetch
        self._stopped = stopped

    async def ReplicaFetch(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.ReplicaFetchRequest],
        context: _Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.ReplicaFetchResponse]:
        """Ends when the follower does, and at once when this broker stops: a follower that
        has nothing to ask for keeps its stream open."""
        serving = asyncio.current_task()
        assert serving is not None
        turn = _Turn(serving)
        ending = asyncio.create_task(self._end_when_stopped(turn))
        requests = aiter(request_iterator)
        try:
            while not self._stopped.is_set():
                turn.may_be_cut_short = True
                request = await anext(requests, None)
                if request is None:
                    return
                response = await self._answer(request)
                turn.may_be_cut_short = False
                yield response
        except asyncio.CancelledError:
            if not self._stopped.is_set():
                raise
            serving.uncancel()
        finally:
            ending.cancel()

    async def _end_when_stopped(self, turn: _Turn) -> None:
        await self._stopped.wait()
        if turn.may_be_cut_short:
            turn.serving.cancel()

    async def _answer(self, request: pb.ReplicaFetchRequest) -> pb.ReplicaFetchResponse:
        response = await self._replica_fetch(await replica_codec.request_from_wire(request))
        return await replica_codec.response_to_wire(response)
