"""Admits requests to a server within the limits of messages and of callers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from google.protobuf.message import Message

from tidelog.caller_limits import (
    METRICS_LIMITS,
    RESERVED_FOR_INSPECTION,
    CallerLimits,
    Callers,
    LimitReached,
)
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.abort import abort
from tidelog.rpc.detached_records import DetachedProduce, parse_produce
from tidelog.rpc.message_bounds import (
    PRODUCE,
    Rejected,
    bounded_deserializer,
    check_in_slices,
    is_internal,
    parsed,
)
from tidelog.rpc.wrapped_handlers import HandlerWrapper, Parse, Stream, Unary, request_type

# Answered regardless of the number of requests: a monitor has to know that the service is alive.
_UNCOUNTED = ("/grpc.health.", "/grpc.reflection.")
_INSPECTIONS = (
    "/tidelog.v1.InspectService/DescribeService",
    "/tidelog.v1.InspectService/Explain",
)
LOG_INTERVAL_S = 10.0

_log = logging.getLogger(__name__)
_Context = Any
_Begin = Callable[[Any, _Context], Awaitable[str]]


class Admission(HandlerWrapper):
    """Admission to one server. Servers of one process share `callers`.

    Requests between brokers and controllers have no limit, because a server accepts more requests
    than all clients together may have. Only their connections are recorded."""

    def __init__(self, callers: Callers | None = None) -> None:
        super().__init__()
        self.callers = callers or new_callers(CallerLimits())
        self._logged_at: dict[str, float] = {}

    def wraps(self, method: str) -> bool:
        return not method.startswith(_UNCOUNTED)

    def parse(self, method: str, parse: Parse | None) -> Parse | None:
        if parse is None:
            return None
        if method == PRODUCE:
            parse = parse_produce
        return bounded_deserializer(method, parse, request_type(method))

    def unary(self, method: str, behave: Unary) -> Unary:
        begin, end = self._counting(method)

        async def admitted(request: Any, context: _Context) -> Any:
            request = await parsed(method, request)
            peer = await begin(request, context)
            try:
                return await behave(request, context)
            finally:
                end(peer)

        return admitted

    def stream(self, method: str, behave: Stream) -> Stream:
        begin, end = self._counting(method)

        async def admitted(request: Any, context: _Context) -> AsyncIterator[Any]:
            request = await parsed(method, request)
            peer = await begin(request, context)
            if isinstance(request, AsyncIterator):
                request = _accepted(method, request, context)
            try:
                async for response in behave(request, context):
                    yield response
            finally:
                end(peer)

        return admitted

    def _counting(self, method: str) -> tuple[_Begin, Callable[[str], None]]:
        if is_internal(method):
            return self._begin_internal, self.callers.end_internal
        return partial(self._begin, method in _INSPECTIONS), self.callers.end

    async def _begin_internal(self, request: Any, context: _Context) -> str:
        peer = str(context.peer())
        if isinstance(request, Rejected):
            self._log_rejection(request.error, peer)
            await abort(context, request.error)
        self.callers.begin_internal(peer)
        return peer

    async def _begin(self, is_inspection: bool, request: Any, context: _Context) -> str:
        """Returns the caller, which is counted from now on. Ends the call if it is rejected."""
        peer = str(context.peer())
        try:
            if isinstance(request, Rejected):
                raise request.error
            message = request.message if isinstance(request, DetachedProduce) else request
            if isinstance(message, Message):
                for _ in check_in_slices(message):
                    await asyncio.sleep(0)
            reserved = RESERVED_FOR_INSPECTION if is_inspection else 0
            self.callers.begin(peer, time.monotonic_ns() // 1_000_000, reserved)
        except TidelogError as error:
            if error.code is not ErrorCode.TOO_MANY_REQUESTS:
                self._log_rejection(error, peer)
            await abort(context, error)
        return peer

    def _log_rejection(self, error: TidelogError, peer: str) -> None:
        """Logs at intervals, because a client may try thousands of times per second."""
        now = time.monotonic()
        code = error.code.name
        if now - self._logged_at.get(code, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged_at[code] = now
            _log.warning("request rejected: %s (client %s, %s)", error.message, peer, code)


async def _accepted(
    method: str, requests: AsyncIterator[Any], context: _Context
) -> AsyncIterator[Any]:
    """Yields requests. Ends the call with the first one that is rejected."""
    async for received in requests:
        request = await parsed(method, received)
        if isinstance(request, Rejected):
            await abort(context, request.error)
        yield request


def new_callers(limits: CallerLimits) -> Callers:
    """Returns the callers of one process. A limit that an address reaches is logged once until the
    address has left it (`caller_limits`)."""
    return Callers(limits, _log_limit)


def _log_limit(reached: LimitReached) -> None:
    what = "metrics-port connections" if reached.limit in METRICS_LIMITS else "requests"
    if reached.limit == "max_connections_per_client":
        what = "requests and idle connections"
    _log.warning(
        "client limit reached: %s of client %s are rejected by %s=%d",
        what,
        reached.address,
        reached.limit,
        reached.value,
    )
