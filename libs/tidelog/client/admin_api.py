"""AdminService as the client calls it: the protocol, and its gRPC implementation."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import grpc.aio
from google.protobuf.message import Message

from tidelog.client.grpc_calls import answered
from tidelog.rpc.trace_context import carried

_Response = TypeVar("_Response", bound=Message)
_SERVICE = "tidelog.v1.AdminService"


class AdminApi(Protocol):
    """Calls to one controller."""

    async def call(self, request: Message, response: type[_Response], timeout_ms: int) -> _Response:
        """Calls the method that takes `request`; it returns `response`. `timeout_ms` bounds the
        entire call."""


class GrpcController:
    def __init__(self, channel: grpc.aio.Channel, address: str) -> None:
        self._channel = channel
        self._address = address

    async def call(self, request: Message, response: type[_Response], timeout_ms: int) -> _Response:
        method: Any = self._channel.unary_unary(
            f"/{_SERVICE}/{method_of(request)}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        call = method(request, timeout=timeout_ms / 1000, metadata=carried())
        answer: _Response = await answered(call, self._address)
        return answer


def method_of(request: Message) -> str:
    """Returns the name of the method that takes the request: "AddPartitions"."""
    return request.DESCRIPTOR.name.removesuffix("Request")
