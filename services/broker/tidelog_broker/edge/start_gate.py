"""Rejects requests while a broker is starting. Health checks, reflection and Inspect are
answered."""

from __future__ import annotations

from collections.abc import Callable
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


class StartGate(grpc.GenericRpcHandler):
    """A handler that is added to a server before its services; each call tries the handlers in
    order.

    `rejection_reason` returns why calls are rejected now; empty: they are accepted. The status
    is UNAVAILABLE, as though the broker were not running."""

    def __init__(self, rejection_reason: Callable[[], str]) -> None:
        self._rejection_reason = rejection_reason

    def service(self, details: Any) -> Any:
        """Returns a handler that rejects the call; None: the next handler is tried."""
        if not self._rejection_reason() or str(details.method).startswith(_ANSWERED):
            return None
        return grpc.unary_unary_rpc_method_handler(self._reject)

    async def _reject(self, _: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(
            grpc.StatusCode.UNAVAILABLE, self._rejection_reason() or "it has just started"
        )
