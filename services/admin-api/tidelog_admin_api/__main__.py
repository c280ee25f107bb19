"""Composition root of the gateway: `python -m tidelog_admin_api --bootstrap HOST:PORT`."""

from __future__ import annotations

if __name__ == "__main__":
    from tidelog_runtime import process_init  # must come before the other imports

from tidelog.missing_extras import exit_not_installed, is_installed

if not is_installed("fastapi", "uvicorn"):
    exit_not_installed("tidelog_admin_api", "tidelog-services[gateway]")

import asyncio
import functools
import gc
import random
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
import uvicorn
import uvloop
from fastapi import FastAPI

from tidelog.client.admin import Admin
from tidelog.client.event_streams import EventStreams
from tidelog.client.explain_requests import explain_cluster
from tidelog.client.service_states import ServiceStates
from tidelog_admin_api.announcing import Announcer, own_announcement
from tidelog_admin_api.app import create_app
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.controller_client import GrpcControllers
from tidelog_admin_api.dependencies import Dependencies, Gateway
from tidelog_admin_api.http_connection import HttpConnection
from tidelog_admin_api.record_clients import RecordClients
from tidelog_runtime.clock import Clock, SystemClock
from tidelog_runtime.config import load
from tidelog_runtime.memory_reserve import started_executor
from tidelog_runtime.pressure.process_pauses import PauseMeter
from tidelog_runtime.pressure.reporting import PressureMeter, reporting_pressure
from tidelog_runtime.pressure.usage import measure_usage
from tidelog_runtime.telemetry.logging import configure_logging
from tidelog_runtime.telemetry.metrics.gateway_catalogue import GATEWAY_METRICS
from tidelog_runtime.telemetry.metrics.http_server import (
    MetricsServer,
    MetricsUnavailableError,
    serve,
    with_metrics_port,
)

EXIT_FAULT = 1
# How long pending requests may take after SIGTERM before they are cancelled.
SERVER_GRACE_SECONDS = 2
LISTEN_BACKLOG = 1_024
KEEP_ALIVE_SECONDS = 30
# How long sent data may be unacknowledged before TCP ends the connection.
PEER_TIMEOUT_MS = 60_000
BLOCKING_THREADS = 8
# Unlike in other services, each request leaves reference cycles behind. A collection frees all
# objects in a single pause, about a microsecond each.
GC_THRESHOLDS = (5_000, 50, 100)


def main(argv: Sequence[str] | None = None) -> int:
    config = load(AdminApiConfig, sys.argv[1:] if argv is None else argv)
    configure_logging(config.service, log_level=config.log_level, log_format=config.log_format)
    return uvloop.run(_serve(config))


async def _serve(config: AdminApiConfig) -> int:
    log = structlog.get_logger()
    try:
        listening = _listen(config.listen)
    except OSError as error:
        log.error(
            "cannot_listen",
            listen=config.listen,
            problem=f"{config.listen} cannot be bound: {error.strerror or error}",
            remedy="stop the other process, or set another address with --listen",
        )
        return EXIT_FAULT
    host, _, _ = config.listen.rpartition(":")
    address = f"{host}:{listening.getsockname()[1]}"
    clock, rng = SystemClock(), random.SystemRandom()
    services = [*config.bootstrap, *config.controllers]
    async with (
        Admin(config.bootstrap, clock=clock, rng=rng) as admin,
        EventStreams(services, clock=clock) as events,
        RecordClients(config.bootstrap) as records,
    ):
        states = ServiceStates(services, clock)
        app = create_app(
            Dependencies(
                admin,
                functools.partial(explain_cluster, services, clock=clock),
                states,
                clock,
                rng,
                events,
                records.producer,
                records.consumer,
                records.published,
            ),
            config,
        )
        metrics_server, controllers = None, GrpcControllers()
        try:
            metrics_server = serve_metrics(config, app)
            log.info("admin_api_started", address=address, url=f"http://{address}/")
            announcement = own_announcement(config.advertised_address or address, clock.wall_ms())
            gateway: Gateway = app.state.gateway
            ports = with_metrics_port([listening.getsockname()[1]], metrics_server)
            meter = pressure_meter(config, ports, clock)
            announcer = Announcer(
                announcement,
                config.controllers,
                admin.describe_cluster,
                controllers,
                clock,
                gateway.usage.limited_clients,
                lambda: meter.current,
            )
            gc.set_threshold(*GC_THRESHOLDS)
            async with reporting_pressure(meter), announcer.running():
                await _run(app, listening)
        except MetricsUnavailableError as error:
            log.error("cannot_listen", listen=config.metrics_listen, problem=str(error))
            return EXIT_FAULT
        finally:
            if metrics_server is not None:
                metrics_server.stop()
            listening.close()
            await controllers.close()
    log.info("admin_api_stopped")
    return 0


def serve_metrics(config: AdminApiConfig, app: FastAPI) -> MetricsServer | None:
    """Returns None if the metrics have no separate port. Raises `MetricsUnavailableError`."""
    if config.metrics_address is None:
        return None
    closed = app.state.gateway.usage.metrics_connection_closed
    return serve(config, GATEWAY_METRICS, app.state.metrics.collect, closed)


def pressure_meter(config: AdminApiConfig, ports: Sequence[int], clock: Clock) -> PressureMeter:
    pauses = PauseMeter()
    most = config.max_connections_per_client
    return PressureMeter(clock, lambda: measure_usage(ports, pauses), most, pauses)


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, int(port)), family=family, backlog=LISTEN_BACKLOG)
    # Accepted connections inherit this option. It ends connections whose peer has vanished or does
    # not read.
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_TIMEOUT_MS)
    listening.setblocking(False)
    return listening


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the composition root."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _run(app: FastAPI, listening: socket.socket) -> None:
    gateway: Gateway = app.state.gateway
    connection = functools.partial(HttpConnection, bounds=gateway.config, usage=gateway.usage)
    server = _Server(
        uvicorn.Config(
            app,
            http=connection,  # type: ignore[arg-type]  # called as the class would be
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SERVER_GRACE_SECONDS,
        )
    )
    loop = asyncio.get_running_loop()
    loop.set_default_executor(started_executor(BLOCKING_THREADS, "blocking"))

    def stop() -> None:
        # Otherwise the server would wait for streams, which may never end.
        gateway.hub.end_streams()
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    # The first client finds the overview in memory.
    warming = asyncio.create_task(gateway.overviews.read())
    try:
        await server.serve(sockets=[listening])
    finally:
        warming.cancel()


if __name__ == "__main__":
    process_init.finish_startup()
    sys.exit(main())
