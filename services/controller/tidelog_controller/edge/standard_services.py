"""The standard health and reflection services that grpcurl and probes expect."""

from __future__ import annotations

from collections.abc import Sequence

import grpc.aio
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tidelog.rpc.health import HealthService


def add_standard_services(server: grpc.aio.Server, service_names: Sequence[str]) -> None:
    """All services report healthy as long as the process serves."""
    health_pb2_grpc.add_HealthServicer_to_server(HealthService(service_names, serving=True), server)
    reflection.enable_server_reflection(
        (*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
