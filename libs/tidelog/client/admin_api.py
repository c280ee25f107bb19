"""AdminService as the client calls it: the protocol, and its gRPC implementation."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from tidelog.client.grpc_calls import ReleasableChannel, answered
from tidelog.rpc.trace_context import carried

_Response = TypeVar("_Response", bound=Message)
_SERVICE = "tidelog.v1.AdminService"


class AdminApi(Protocol):
    """Calls to one controller."""

    async def call(self, request: Message, response: type[_Response], timeout_ms: int) -> _Response:
        """Calls the method that takes `request`; it returns `response`. `timeout_ms` bounds the
        entire call."""


class GrpcController:
    def __init__(self, channel: ReleasableChannel) -> None:
        self._channel = channel

    async def call(self, request: Message, response: type[_Response], timeout_ms: int) -> _Response:
        answer: _Response = await answered(
            self._begin(request, response, timeout_ms), self._channel.address
        )
        return answer

    def _begin(self, request: Message, response: type[_Response], timeout_ms: int) -> Any:
        method: Any = self._channel.channel.unary_unary(
            f"/{_SERVICE}/{method_of(request)}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return method(request, timeout=timeout_ms / 1000, metadata=carried())


def method_of(request: Message) -> str:
    """Returns the name of the method that takes the request: "AddPartitions"."""
    return request.DESCRIPTOR.name.removesuffix("Request")
