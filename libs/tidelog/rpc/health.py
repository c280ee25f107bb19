"""The standard health service (`grpc.health.v1`).

The servicer of grpcio-health-checking holds a lock while it sends a status to a watcher, and `set`
needs that lock: a client that takes nothing would keep a broker from stopping in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

_Status = health_pb2.HealthCheckResponse


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """All services of one process have the same status. The empty name is that of the process."""

    def __init__(self, service_names: Iterable[str] = (), *, serving: bool = False) -> None:
        self._names = frozenset(("", *service_names))
        self._serving = serving
        self._changed = asyncio.Event()

    def set_serving(self, serving: bool) -> None:
        self._serving = serving
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r}"
            )
        return _Status(status=status)

    async def Watch(  # noqa: N802
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        last = None
        while True:
            changed, status = self._changed, self._status(request.service)
            if status != last:
                last = status
                yield _Status(status=status)
            else:
                await changed.wait()

    def _status(self, service: str) -> Any:
        if service not in self._names:
            return _Status.SERVICE_UNKNOWN
        return _Status.SERVING if self._serving else _Status.NOT_SERVING
