"""Rejects requests while a broker is starting. Health checks, reflection and Inspect are
answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from tidelog.v1 import inspect_pb2

_ANSWERED = tuple(
    f"/{name}/"
    for name in (
        health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
        inspect_pb2.DESCRIPTOR.services_by_name["InspectService"].full_name,
        reflection.SERVICE_NAME,
    )
)


class StartGate(grpc.aio.ServerInterceptor):
    """The first interceptor of a server. A generic handler is not enough: gRPC looks for methods
    that generated code registered before it tries other handlers.

    `rejection_reason` returns why calls are rejected now; empty: they are accepted. The status
    is UNAVAILABLE, as though the broker were not running."""

    def __init__(self, rejection_reason: Callable[[], str]) -> None:
        self._rejection_reason = rejection_reason
        # A handler of one request would wait for it, and a client may never send it.
        self._rejecting: Any = grpc.stream_stream_rpc_method_handler(self._reject)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        method = str(handler_call_details.method)
        if not self._rejection_reason() or method.startswith(_ANSWERED):
            return await continuation(handler_call_details)
        return self._rejecting

    async def _reject(self, _: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(
            grpc.StatusCode.UNAVAILABLE, self._rejection_reason() or "it has just started"
        )
