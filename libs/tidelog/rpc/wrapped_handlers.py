"""Base class of interceptors that change how a server's handlers are called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import Default

Parse = Callable[[bytes], Any]
# Called with the request, or the stream of requests, and the context.
Unary = Callable[[Any, Any], Awaitable[Any]]
Stream = Callable[[Any, Any], AsyncIterator[Any]]


class HandlerWrapper(grpc.aio.ServerInterceptor, ABC):
    """Interceptor of one server. It wraps each handler once: gRPC requests it for every call."""

    def __init__(self) -> None:
        self._wrapped: dict[str, tuple[Any, Any]] = {}

    @abstractmethod
    def unary(self, method: str, behave: Unary) -> Unary:
        """Wraps a handler with one response, for one request or a stream of requests."""

    @abstractmethod
    def stream(self, method: str, behave: Stream) -> Stream:
        """Wraps a handler with a stream of responses, for one request or a stream of requests."""

    def stream_of_one(self, method: str, behave: Stream) -> Stream:
        """Wraps a handler with a stream of responses for one request."""
        return self.stream(method, behave)

    def parse(self, method: str, parse: Parse | None) -> Parse | None:  # noqa: ARG002
        """Returns the deserializer of requests."""
        return parse

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None:
            return None
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            known = handler, self._wrap(method, handler)
            if is_declared(method):
                self._wrapped[method] = known
        return known[1]

    def _wrap(self, method: str, handler: Any) -> Any:
        forms = self.parse(method, handler.request_deserializer), handler.response_serializer
        if handler.unary_unary is not None:
            wrapped = self.unary(method, handler.unary_unary)
            return grpc.unary_unary_rpc_method_handler(wrapped, *forms)
        if handler.stream_unary is not None:
            wrapped = self.unary(method, handler.stream_unary)
            return grpc.stream_unary_rpc_method_handler(wrapped, *forms)
        if handler.unary_stream is not None:
            streaming = self.stream_of_one(method, handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(streaming, *forms)
        streaming = self.stream(method, handler.stream_stream)
        return grpc.stream_stream_rpc_method_handler(streaming, *forms)


def is_declared(method: str) -> bool:
    """Returns whether a service of this process has it. A client can invent any other name."""
    return request_type(method) is not None


def request_type(method: str) -> Descriptor | None:
    """Returns the request type of `/package.Service/Method`; None: there is no such method."""
    service, _, name = method.lstrip("/").partition("/")
    try:
        found = Default().FindServiceByName(service)
    except KeyError:
        return None
    rpc = found.methods_by_name.get(name)
    return None if rpc is None else rpc.input_type
