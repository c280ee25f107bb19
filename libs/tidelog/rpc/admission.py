"""Which requests a server serves: within the bounds of messages, and of their callers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message

from tidelog.caller_limits import RESERVED_FOR_INSPECTION, CallerLimits, Callers, LimitReached
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.abort import abort
from tidelog.rpc.message_bounds import (
    Rejected,
    bounded_deserializer,
    check_in_slices,
    is_internal,
)

# Answered however many requests there are: who watches a service has to know that it is there.
_UNCOUNTED = ("/grpc.health.", "/grpc.reflection.")
_INSPECTIONS = (
    "/tidelog.v1.InspectService/DescribeService",
    "/tidelog.v1.InspectService/Explain",
)
LOG_INTERVAL_S = 10.0

_log = logging.getLogger(__name__)
_Context = Any


class Admission(grpc.aio.ServerInterceptor):
    """Of one server; servers of one process share `callers`. Requests of brokers and controllers
    among themselves are left alone: no client's take their room, since a server takes more requests
    than all clients together may have."""

    def __init__(self, callers: Callers | None = None) -> None:
        self.callers = callers or new_callers(CallerLimits())
        self._bounded: dict[str, Any] = {}
        self._logged_at: dict[str, float] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or method.startswith(_UNCOUNTED) or is_internal(method):
            return handler
        known = self._bounded.get(method)
        if known is None or known[0] is not handler:
            known = handler, self._bound(method, handler)
            if is_declared(method):
                self._bounded[method] = known
        return known[1]

    def _bound(self, method: str, handler: Any) -> Any:
        parse = handler.request_deserializer
        if parse is not None:
            parse = bounded_deserializer(method, parse, request_type(method))
        reserved = RESERVED_FOR_INSPECTION if method in _INSPECTIONS else 0
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(handler.unary_unary, reserved), parse, handler.response_serializer
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(handler.unary_stream, reserved), parse, handler.response_serializer
            )
        raise NotImplementedError(f"{method}: requests that come as a stream have no bounds yet")

    def _unary(self, behave: Callable[..., Any], reserved: int) -> Callable[..., Any]:
        async def admitted(request: Any, context: _Context) -> Any:
            peer = await self._begin(request, context, reserved)
            try:
                return await behave(request, context)
            finally:
                self.callers.end(peer)

        return admitted

    def _stream(self, behave: Callable[..., Any], reserved: int) -> Callable[..., Any]:
        async def admitted(request: Any, context: _Context) -> AsyncIterator[Any]:
            peer = await self._begin(request, context, reserved)
            try:
                async for response in behave(request, context):
                    yield response
            finally:
                self.callers.end(peer)

        return admitted

    async def _begin(self, request: Any, context: _Context, reserved: int) -> str:
        """The caller, which is counted from now on. Ends the call of a request that is rejected."""
        peer = str(context.peer())
        try:
            if isinstance(request, Rejected):
                raise request.error
            if isinstance(request, Message):
                for _ in check_in_slices(request):
                    await asyncio.sleep(0)
            self.callers.begin(peer, time.time_ns() // 1_000_000, reserved)
        except TidelogError as error:
            if error.code is not ErrorCode.TOO_MANY_REQUESTS:
                self._log_rejection(error, peer)
            await abort(context, error)
        return peer

    def _log_rejection(self, error: TidelogError, peer: str) -> None:
        """A client may try thousands of times a second."""
        now = time.monotonic()
        code = error.code.name
        if now - self._logged_at.get(code, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged_at[code] = now
            _log.warning("request rejected: %s (client %s, %s)", error.message, peer, code)


def new_callers(limits: CallerLimits) -> Callers:
    """Of one process. A limit that an address reaches is logged once, until it has left it."""
    return Callers(limits, _log_limit)


def _log_limit(reached: LimitReached) -> None:
    _log.warning(
        "client limit reached: requests of client %s are rejected by %s=%d",
        reached.address,
        reached.limit,
        reached.value,
    )


def is_declared(method: str) -> bool:
    """Whether it is an RPC of Tidelog's: a client can make up any other name."""
    return request_type(method) is not None


def request_type(method: str) -> Descriptor | None:
    """Of `/package.Service/Method`; None: there is none."""
    service, _, name = method.lstrip("/").partition("/")
    try:
        found = Default().FindServiceByName(service)
    except KeyError:
        return None
    rpc = found.methods_by_name.get(name)
    return None if rpc is None else rpc.input_type
