"""InspectService, the same on every service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol

import grpc.aio

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.model import Explanation, Scope, ServiceState, StateRequest
from tidelog.rpc.abort import abort
from tidelog.rpc.inspect_codec import event_to_wire, from_wire, to_wire
from tidelog.rpc.trace_context import carrying, passed_on
from tidelog.rpc.wire import error_to_wire
from tidelog.state_changes.event import StateChange
from tidelog.v1 import inspect_pb2 as pb
from tidelog.v1.inspect_pb2_grpc import InspectServiceServicer
from tidelog_runtime.telemetry.state_change_log import Filter, StateChangeLog

DEFAULT_EXPLAIN_TIMEOUT_MS = 2_000
MAX_EXPLAIN_TIMEOUT_MS = 60_000
MAX_EVENTS_PER_MESSAGE = 500

_Context = grpc.aio.ServicerContext[Any, Any]


class Inspected(Protocol):
    """A service that can tell how it stands."""

    def describe(self, request: StateRequest) -> Awaitable[ServiceState]: ...

    def explain(self, scope: Scope, timeout_ms: int) -> Awaitable[Explanation]: ...


class InspectServicer(InspectServiceServicer):
    def __init__(self, inspected: Inspected, state_changes: StateChangeLog) -> None:
        self._inspected = inspected
        self._state_changes = state_changes

    async def WatchEvents(  # noqa: N802 - the generated name
        self, request: pb.WatchEventsRequest, context: _Context
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        await _require_topic(context, request, request.topic)
        wanted = Filter(
            request.topic,
            request.partition if request.HasField("partition") else None,
            request.broker if request.HasField("broker") else None,
            frozenset(request.kinds),
            request.since_ms,
        )
        recent = self._state_changes.recent(wanted, request.limit)
        if not request.follow:
            for message in _messages(recent, 0):
                yield message
            return
        follower = self._state_changes.follow(wanted)
        try:
            for message in _messages(recent, 0):
                yield message
            while True:
                for message in _messages(*await follower.next()):
                    yield message
        finally:
            with contextlib.suppress(ValueError):
                self._state_changes.unfollow(follower)

    async def DescribeService(  # noqa: N802 - the generated name
        self, request: pb.DescribeServiceRequest, context: _Context
    ) -> pb.DescribeServiceResponse:
        await _require_topic(context, request, request.topic)
        state = await self._inspected.describe(from_wire(request, StateRequest))
        # In a thread: thousands of replicas would hold up the event loop.
        return await asyncio.to_thread(to_wire, state, pb.DescribeServiceResponse)

    async def Explain(  # noqa: N802 - the generated name
        self, request: pb.ExplainRequest, context: _Context
    ) -> pb.ExplainResponse:
        await _require_topic(context, request, request.topic)
        asked_ms = request.timeout_ms or DEFAULT_EXPLAIN_TIMEOUT_MS
        scope = Scope(
            request.topic,
            request.partition if request.HasField("partition") else None,
            request.broker if request.HasField("broker") else None,
        )
        try:
            # Other services are asked on behalf of the same request.
            with carrying(passed_on(context.invocation_metadata())):
                explained = await self._inspected.explain(
                    scope, min(asked_ms, MAX_EXPLAIN_TIMEOUT_MS)
                )
        except TidelogError as error:
            return pb.ExplainResponse(error=error_to_wire(error))
        return pb.ExplainResponse(
            findings=[to_wire(finding, pb.Finding) for finding in explained.findings],
            asked=explained.asked,
            silent=explained.silent,
        )


def _messages(changes: list[StateChange], dropped: int) -> list[pb.WatchEventsResponse]:
    slices = range(0, len(changes), MAX_EVENTS_PER_MESSAGE)
    return [
        pb.WatchEventsResponse(
            events=[event_to_wire(c) for c in changes[first : first + MAX_EVENTS_PER_MESSAGE]],
            dropped=dropped if first == 0 else 0,
        )
        for first in slices
    ]


async def _require_topic(
    context: _Context,
    request: pb.WatchEventsRequest | pb.DescribeServiceRequest | pb.ExplainRequest,
    topic: str,
) -> None:
    if request.HasField("partition") and not topic:
        await abort(
            context,
            TidelogError(
                ErrorCode.INVALID_REQUEST,
                "a partition is given without its topic; name the topic, or leave both out",
            ),
        )
