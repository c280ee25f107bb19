"""Admits requests to a server within the limits of messages and of callers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from tidelog.caller_limits import (
    METRICS_LIMITS,
    RESERVED_FOR_HEALTH_CHECKS,
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
from tidelog.unsent_answers import ANSWER_LIMITS, CallAnswer

# How far requests may exceed the limits: those that report how a service is.
_RESERVED = {
    "/grpc.health.v1.Health/Check": RESERVED_FOR_HEALTH_CHECKS,
    "/tidelog.v1.InspectService/DescribeService": RESERVED_FOR_INSPECTION,
    "/tidelog.v1.InspectService/Explain": RESERVED_FOR_INSPECTION,
}
# From the beginning of a call until its request has arrived in full. The largest one, of 32 MiB,
# needs a rate of 560 kB/s.
REQUEST_ARRIVAL_TIMEOUT_S = 60.0
LOG_INTERVAL_S = 10.0
# First words of the methods that only read.
_READS = ("Fetch", "Metadata", "List", "Describe", "Explain")

_log = logging.getLogger(__name__)
_Context = Any
_Begin = Callable[[_Context], Awaitable[CallAnswer | None]]
_answer: ContextVar[CallAnswer] = ContextVar("answer")


class Admission(HandlerWrapper):
    """Admission to one server, of standard services as well. Servers of one process share
    `callers`.

    Requests between brokers and controllers have no limit, because a server accepts more requests
    than all clients together may have. Only their connections are recorded."""

    def __init__(self, callers: Callers | None = None) -> None:
        super().__init__()
        self.callers = callers or new_callers(CallerLimits())
        self._logged_at: dict[str, float] = {}

    def parse(self, method: str, parse: Parse | None) -> Parse | None:
        if parse is None:
            return None
        if method == PRODUCE:
            parse = parse_produce
        return bounded_deserializer(method, parse, request_type(method))

    def _wrap(self, method: str, handler: Any) -> Any:
        """A call takes room of the server as soon as it exists, but gRPC calls a handler of one
        request only when that has arrived, and a client may never send it. So gRPC gets handlers
        of streams, which count the call and then read its request."""
        if handler.stream_unary is not None:
            raise NotImplementedError(f"{method}: a stream of requests with one answer")
        if not is_internal(method):
            handler = _serializing(handler)
        wrapped = super()._wrap(method, handler)
        forms = wrapped.request_deserializer, wrapped.response_serializer
        if wrapped.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(wrapped.unary_unary, *forms)
        if wrapped.unary_stream is not None:
            return grpc.stream_stream_rpc_method_handler(wrapped.unary_stream, *forms)
        return wrapped

    def unary(self, method: str, behave: Unary) -> Unary:
        begin = self._counting(method)

        async def admitted(_: Any, context: _Context) -> Any:
            answer = await begin(context)
            response = await behave(await self._only_request(method, context), context)
            if answer is not None:
                if _is_read(method):
                    answer.check_room(len(response))
                # Until the end of the call, which is that of sending.
                answer.set_size(len(response))
                self.callers.answers.send(answer, _now_ms())
            return response

        return admitted

    def stream_of_one(self, method: str, behave: Stream) -> Stream:
        begin = self._counting(method)

        async def admitted(_: Any, context: _Context) -> AsyncIterator[Any]:
            answer = await begin(context)
            async for response in behave(await self._only_request(method, context), context):
                if answer is not None:
                    answer.check_room(len(response))
                    answer.set_size(len(response))
                yield response
                # Now it has been sent.
                if answer is not None:
                    answer.discard()

        return admitted

    def stream(self, method: str, behave: Stream) -> Stream:
        begin = self._counting(method)

        async def admitted(requests: Any, context: _Context) -> AsyncIterator[Any]:
            await begin(context)
            async for response in behave(self._accepted(method, requests, context), context):
                yield response

        return admitted

    def _counting(self, method: str) -> _Begin:
        """Returns a function that counts a call until its end, or ends it if it is rejected. The
        end is not that of its handler: a client may leave the response unread."""
        if is_internal(method):
            return self._begin_internal
        return partial(self._begin, _RESERVED.get(method, 0))

    async def _begin_internal(self, context: _Context) -> CallAnswer | None:
        peer = str(context.peer())
        self.callers.begin_internal(peer)
        context.add_done_callback(lambda _: self.callers.end_internal(peer))
        return None

    async def _begin(self, reserved: int, context: _Context) -> CallAnswer | None:
        peer = str(context.peer())
        try:
            self.callers.begin(peer, _now_ms(), reserved)
        except TidelogError as error:
            await abort(context, error)
        answer = self.callers.new_answer(peer)
        _answer.set(answer)

        def end(_: _Context) -> None:
            self.callers.end(peer)
            self.callers.answers.end(answer)

        context.add_done_callback(end)
        return answer

    async def _only_request(self, method: str, context: _Context) -> Any:
        name = method.rpartition("/")[2]
        try:
            async with asyncio.timeout(REQUEST_ARRIVAL_TIMEOUT_S):
                received = await context.read()
        except TimeoutError:
            await abort(
                context,
                TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no request of this {name} call arrived within "
                    f"{REQUEST_ARRIVAL_TIMEOUT_S:g} s; send it with the call",
                ),
            )
        if received is grpc.aio.EOF:
            # Without a status the call would stay open.
            await abort(
                context,
                TidelogError(
                    ErrorCode.INVALID_REQUEST, f"a {name} call ended without a request; send one"
                ),
            )
        return await self._accept(method, received, context)

    async def _accepted(
        self, method: str, requests: AsyncIterator[Any], context: _Context
    ) -> AsyncIterator[Any]:
        async for received in requests:
            yield await self._accept(method, received, context)

    async def _accept(self, method: str, received: Any, context: _Context) -> Any:
        """Returns the request. Ends the call if the request is rejected."""
        request = await parsed(method, received)
        try:
            if isinstance(request, Rejected):
                raise request.error
            message = request.message if isinstance(request, DetachedProduce) else request
            # `parsed` checks those between brokers and controllers.
            if isinstance(message, Message) and not is_internal(method):
                for _ in check_in_slices(message):
                    await asyncio.sleep(0)
        except TidelogError as error:
            self._log_rejection(error, str(context.peer()))
            await abort(context, error)
        return request

    def _log_rejection(self, error: TidelogError, peer: str) -> None:
        """Logs at intervals, because a client may try thousands of times per second."""
        now = time.monotonic()
        code = error.code.name
        if now - self._logged_at.get(code, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged_at[code] = now
            _log.warning("request rejected: %s (client %s, %s)", error.message, peer, code)


def _is_read(method: str) -> bool:
    """Returns whether a call of this method has no effect, so that its answer may be rejected."""
    name = method.rpartition("/")[2]
    # It may fence producers.
    return name.startswith(_READS) and name != "DescribeProducers"


def answer_of_call() -> CallAnswer | None:
    """Returns the answer of the call whose handler is running; None: it has no limit."""
    return _answer.get(None)


def _serializing(handler: Any) -> Any:
    """Returns a handler whose responses are bytes, so that their size is known and the message is
    not kept beside them."""
    serialize = handler.response_serializer
    forms = handler.request_deserializer, None
    if serialize is None or handler.stream_stream is not None:
        return handler
    if handler.unary_unary is not None:
        behave = handler.unary_unary

        async def respond(request: Any, context: _Context) -> Any:
            return serialize(await behave(request, context))

        return grpc.unary_unary_rpc_method_handler(respond, *forms)
    stream = handler.unary_stream

    async def respond_all(request: Any, context: _Context) -> AsyncIterator[Any]:
        async for response in stream(request, context):
            yield serialize(response)

    return grpc.unary_stream_rpc_method_handler(respond_all, *forms)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def new_callers(limits: CallerLimits) -> Callers:
    """Returns the callers of one process. A limit that an address reaches is logged once until the
    address has left it (`caller_limits`)."""
    return Callers(limits, _log_limit)


def _log_limit(reached: LimitReached) -> None:
    what = "metrics-port connections" if reached.limit in METRICS_LIMITS else "requests"
    if reached.limit in ANSWER_LIMITS:
        what = "answers"
    if reached.limit == "max_connections_per_client":
        what = "requests and idle connections"
    _log.warning(
        "client limit reached: %s of client %s are rejected by %s=%d",
        what,
        reached.address,
        reached.limit,
        reached.value,
    )
