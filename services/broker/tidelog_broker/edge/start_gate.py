"""Keeps requests from a broker that is starting; health checks and Inspect are answered."""

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
    """To be added to a server before its services: each call goes through the handlers in
    their order. `refusal`: why calls are refused now, with UNAVAILABLE, which whoever called
    takes for a broker that is not there; empty: they are not."""

    def __init__(self, refusal: Callable[[], str]) -> None:
        self._refusal = refusal

    def service(self, details: Any) -> Any:
        """A handler that refuses; None: the next one is asked."""
        if not self._refusal() or str(details.method).startswith(_ANSWERED):
            return None
        return grpc.unary_unary_rpc_method_handler(self._refuse)

    async def _refuse(self, _: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, self._refusal() or "it has just started")
