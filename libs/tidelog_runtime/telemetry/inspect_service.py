"""InspectService, which is the same on every service."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import grpc.aio

from tidelog.caller_limits import Callers
from tidelog.client.cluster_explainer import Explainer
from tidelog.errors import TidelogError
from tidelog.inspection.state_reports import Explanation, Scope, ServiceState, StateRequest
from tidelog.rpc.abort import abort
from tidelog.rpc.event_codec import event_to_wire
from tidelog.rpc.inspect_requests import check_description, check_events, check_explanation
from tidelog.rpc.message_codec import from_wire, to_wire
from tidelog.rpc.trace_context import carrying, passed_on
from tidelog.rpc.wire import error_to_wire
from tidelog.state_changes.event import StateChange
from tidelog.v1 import inspect_pb2 as pb
from tidelog.v1.inspect_pb2_grpc import InspectServiceServicer
from tidelog_runtime.telemetry.state_change_log import Filter, StateChangeLog

DEFAULT_EXPLAIN_TIMEOUT_MS = 2_000
MAX_EXPLAIN_TIMEOUT_MS = 60_000
# Work between two yields to the event loop; each takes about a millisecond.
MAX_EVENTS_PER_MESSAGE = 100
EVENTS_FILTERED_PER_SLICE = 1_000

_Context = grpc.aio.ServicerContext[Any, Any]


class Inspected(Protocol):
    """A service that describes itself and explains its cluster."""

    def describe(self, request: StateRequest) -> Awaitable[ServiceState]: ...

    def explain(self, scope: Scope, timeout_ms: int) -> Awaitable[Explanation]: ...


class InspectServicer(InspectServiceServicer):
    def __init__(self, inspected: Inspected, state_changes: StateChangeLog) -> None:
        self._inspected = inspected
        self._state_changes = state_changes

    async def WatchEvents(  # noqa: N802 - the generated name
        self, request: pb.WatchEventsRequest, context: _Context
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        await _reject_wrong(context, lambda: check_events(request))
        selected = Filter(
            request.topic,
            request.partition if request.HasField("partition") else None,
            request.broker if request.HasField("broker") else None,
            frozenset(request.kinds),
            request.since_ms,
        )
        # Without an await in between: later events arrive through the follower.
        kept, oldest_kept_ms = self._state_changes.kept(), self._state_changes.oldest_kept_ms
        follower = self._state_changes.follow(selected) if request.follow else None
        try:
            recent = await newest_of(kept, selected, request.limit)
            # Sent even without events, because it reports how far back the ring reaches.
            yield pb.WatchEventsResponse(oldest_kept_ms=oldest_kept_ms)
            async for message in _messages(recent, 0):
                yield message
            while follower is not None:
                async for message in _messages(*await follower.next()):
                    yield message
        finally:
            if follower is not None:
                with contextlib.suppress(ValueError):
                    self._state_changes.unfollow(follower)

    async def DescribeService(  # noqa: N802 - the generated name
        self, request: pb.DescribeServiceRequest, context: _Context
    ) -> pb.DescribeServiceResponse:
        await _reject_wrong(context, lambda: check_description(request))
        state = await self._inspected.describe(from_wire(request, StateRequest))
        # In a thread, because thousands of replicas would block the event loop.
        return await asyncio.to_thread(to_wire, state, pb.DescribeServiceResponse)

    async def Explain(  # noqa: N802 - the generated name
        self, request: pb.ExplainRequest, context: _Context
    ) -> pb.ExplainResponse:
        await _reject_wrong(context, lambda: check_explanation(request))
        asked_ms = DEFAULT_EXPLAIN_TIMEOUT_MS
        if request.HasField("timeout_ms"):
            asked_ms = request.timeout_ms
        scope = Scope(
            request.topic,
            request.partition if request.HasField("partition") else None,
            request.broker if request.HasField("broker") else None,
        )
        try:
            # Queries to other services carry the trace of this request.
            with carrying(passed_on(context.invocation_metadata())):
                explained = await self._inspected.explain(
                    scope, min(asked_ms, MAX_EXPLAIN_TIMEOUT_MS)
                )
        except TidelogError as error:
            return pb.ExplainResponse(error=error_to_wire(error))
        # In a thread, because thousands of findings would block the event loop.
        return await asyncio.to_thread(_explained, explained)


def _explained(explanation: Explanation) -> pb.ExplainResponse:
    return pb.ExplainResponse(
        findings=[to_wire(finding, pb.Finding) for finding in explanation.findings],
        asked=explanation.asked,
        silent=explanation.silent,
        listening=explanation.listening,
    )


async def newest_of(kept: Sequence[StateChange], selected: Filter, limit: int) -> list[StateChange]:
    """Returns the newest changes that pass the filter, oldest first.

    - `limit`: at most this many; 0: all.

    Yields to the event loop.
    """
    found: list[StateChange] = []
    for end in range(len(kept), 0, -EVENTS_FILTERED_PER_SLICE):
        some = kept[max(0, end - EVENTS_FILTERED_PER_SLICE) : end]
        found += [change for change in reversed(some) if selected.passes(change)]
        if limit and len(found) >= limit:
            del found[limit:]
            break
        await asyncio.sleep(0)
    found.reverse()
    return found


async def _messages(
    changes: Sequence[StateChange], dropped: int
) -> AsyncIterator[pb.WatchEventsResponse]:
    """Yields messages with the changes.

    Each message is made when the previous one was consumed, so that a full ring does not block
    the event loop.
    """
    for first in range(0, len(changes), MAX_EVENTS_PER_MESSAGE):
        await asyncio.sleep(0)
        yield pb.WatchEventsResponse(
            events=[event_to_wire(c) for c in changes[first : first + MAX_EVENTS_PER_MESSAGE]],
            dropped=dropped if first == 0 else 0,
        )


async def _reject_wrong(context: _Context, check: Callable[[], None]) -> None:
    try:
        check()
    except TidelogError as error:
        await abort(context, error)


class SelfDescribing(Protocol):
    def describe(self, request: StateRequest) -> Awaitable[ServiceState]: ...


class ExplainingService:
    """The interface for `InspectServicer`, over a service that describes itself.

    - `callers`: the clients of all servers of the service.
    """

    def __init__(self, described: SelfDescribing, explainer: Explainer, callers: Callers) -> None:
        self._described = described
        self._explainer = explainer
        self._callers = callers

    async def describe(self, request: StateRequest) -> ServiceState:
        state = await self._described.describe(request)
        now_ms = time.monotonic_ns() // 1_000_000
        return dataclasses.replace(state, limited_clients=self._callers.limited(now_ms))

    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:
        return await self._explainer.explain((), scope, timeout_ms, self.describe)
