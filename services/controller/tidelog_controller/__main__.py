"""Composition root of the controller: `python -m tidelog_controller --controller-id 1`."""

from __future__ import annotations

if __name__ == "__main__":
    from tidelog_runtime import process_init  # must come before the other imports

import asyncio
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import NamedTuple

import grpc.aio
import structlog
import uvloop

from tidelog.caller_limits import Callers
from tidelog.client.cluster_explainer import Explainer
from tidelog.memory_shortage import described, is_memory_shortage
from tidelog.rpc.admission import new_callers
from tidelog.rpc.channels import new_server
from tidelog.v1 import admin_pb2, controller_pb2, inspect_pb2
from tidelog.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server
from tidelog.v1.controller_pb2_grpc import add_ControllerServiceServicer_to_server
from tidelog.v1.inspect_pb2_grpc import add_InspectServiceServicer_to_server
from tidelog_controller.controller_config import ControllerConfig
from tidelog_controller.core.write_pace import Intervals
from tidelog_controller.edge.admin import AdminServicer, ExternalAdminServicer
from tidelog_controller.edge.controller_servicer import ControllerServicer
from tidelog_controller.edge.replica_control_client import GrpcReplicaControl
from tidelog_controller.edge.standard_services import add_standard_services
from tidelog_controller.metrics.controller_metrics import ControllerMetrics
from tidelog_controller.metrics.decision_meter import Admin, MeteredAdmin
from tidelog_controller.policies.internal_topics import InternalTopic, state_changes_topic
from tidelog_controller.policies.leader_balance import LeaderBalancing
from tidelog_controller.shell.broker_channel import TcpDialer
from tidelog_controller.shell.event_loop import Environment, NoStopwatch
from tidelog_controller.shell.service import ControllerService
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.config import load
from tidelog_runtime.external_addresses import ExternalAddresses
from tidelog_runtime.garbage_collection import idle_garbage_collection
from tidelog_runtime.memory_reserve import MemoryReserve, end_within, started_executor
from tidelog_runtime.metadata.etcd import EtcdStore
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.metadata.schema import ControllerEntry
from tidelog_runtime.metadata.store import StoreError
from tidelog_runtime.pressure.idle_connections import closing_idle_connections
from tidelog_runtime.pressure.process_pauses import PauseMeter
from tidelog_runtime.pressure.reporting import PressureReports, reporting_pressure
from tidelog_runtime.pressure.usage import measure_usage
from tidelog_runtime.telemetry.external_inspect import ExternalInspectServicer
from tidelog_runtime.telemetry.inspect_service import ExplainingService, InspectServicer
from tidelog_runtime.telemetry.logging import configure_logging
from tidelog_runtime.telemetry.metrics.controller_catalogue import CONTROLLER_METRICS
from tidelog_runtime.telemetry.metrics.http_server import (
    MetricsServer,
    MetricsUnavailableError,
    serve,
    with_metrics_port,
)
from tidelog_runtime.telemetry.metrics.service_metrics import (
    closed_metrics_connections,
    with_callers,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from tidelog_runtime.telemetry.state_change_publisher import publishing, registered_brokers

EXIT_FAULT = 1
# The time that requests in progress get after SIGTERM.
SERVER_GRACE_SECONDS = 1.0
BLOCKING_THREADS = 8
# A process without memory ends within this time in any case.
END_AFTER_FAULT_SECONDS = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    config = load(ControllerConfig, sys.argv[1:] if argv is None else argv)
    configure_logging(
        config.service,
        log_level=config.log_level,
        log_format=config.log_format,
    )
    try:
        return uvloop.run(_serve(config))
    except Exception as error:
        if not is_memory_shortage(error):
            raise
        # At its start, or if the loop's end cannot start a thread; see also `_run_until`.
        end_within(END_AFTER_FAULT_SECONDS)
        structlog.get_logger().critical("crashed", why=described(error))
        return EXIT_FAULT


async def _serve(config: ControllerConfig) -> int:
    log = structlog.get_logger()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(started_executor(BLOCKING_THREADS, "blocking"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    callers = new_callers(config.caller_limits)
    server = new_server(callers)
    external = new_server(callers) if config.external_listen is not None else None
    try:
        port = listen(server, config.listen, "--listen")
        ports = [port]
        if external is not None and config.external_listen is not None:
            ports.append(listen(external, config.external_listen, "--external-listen"))
    except CannotListenError as error:
        log.error("cannot_listen", listen=error.address, problem=error.problem, remedy=error.remedy)
        return EXIT_FAULT
    address = config.advertised_address or f"{config.listen.rpartition(':')[0]}:{port}"
    parts = new_controller(config, address, callers)
    await add_services(server, parts)
    servers = [server]
    if external is not None:
        await add_external_services(external, parts)
        servers.append(external)
    metrics_server = None
    try:
        metrics_server = serve_metrics(config, parts, callers)
        all_ports = with_metrics_port(ports, metrics_server)
        for each in servers:
            await each.start()
        log.info("controller_started", address=address, cluster=config.cluster)
        find_brokers = partial(registered_brokers, parts.store, Keys(config.cluster))
        async with (
            idle_garbage_collection(),
            publishing(parts.state_changes, find_brokers, config),
            reporting_pressure(pressure_reports(config, parts, all_ports)),
            closing_idle_connections(callers, ports, SystemClock()),
        ):
            return await _run_until(stopping, parts.service, log)
    except MetricsUnavailableError as error:
        log.error("cannot_listen", listen=config.metrics_listen, problem=str(error))
        return EXIT_FAULT
    finally:
        if metrics_server is not None:
            metrics_server.stop()
        await asyncio.gather(*(each.stop(SERVER_GRACE_SECONDS) for each in servers))
        await parts.store.close()
        parts.state_changes.flush()


class CannotListenError(Exception):
    def __init__(self, address: str, setting: str) -> None:
        self.address = address
        self.problem = (
            f"cannot bind to {address}: another process uses it, or this machine has no such "
            "address"
        )
        self.remedy = f"stop the other process, or set another address with {setting}"
        super().__init__(f"{self.problem}; {self.remedy}")


def listen(server: grpc.aio.Server, address: str, setting: str) -> int:
    """Returns the bound port. Raises `CannotListenError`, which names the setting."""
    try:
        return server.add_insecure_port(address)
    except RuntimeError:
        raise CannotListenError(address, setting) from None


class Parts(NamedTuple):
    """`metrics`: None if nothing is measured."""

    service: ControllerService
    admin: Admin
    explained: ExplainingService
    store: MeasuredStore
    state_changes: StateChangeLog
    metrics: ControllerMetrics | None


def new_controller(config: ControllerConfig, address: str, callers: Callers) -> Parts:
    """`address`: where other services reach it."""
    clock, rng, keys = SystemClock(), random.SystemRandom(), Keys(config.cluster)
    state_changes = StateChangeLog(config.service, clock)
    store = MeasuredStore(
        EtcdStore(config.etcd_endpoints, clock=clock, rng=rng), keys.cluster, clock, state_changes
    )
    metrics = None
    if config.metrics_address is not None:
        metrics = ControllerMetrics(store, state_changes, time.perf_counter)
    environment = Environment(
        store=store,
        keys=keys,
        clock=clock,
        rng=rng,
        connect=lambda broker: GrpcReplicaControl(broker, config.command_timeout_ms, rng),
        dialer=TcpDialer(),
        log=structlog.get_logger(),
        state_changes=state_changes,
        command_timeout_ms=config.command_timeout_ms,
        max_moves_per_broker=config.max_moves_per_broker,
        leader_balancing=leader_balancing(config),
        intervals=Intervals(config.move_step_interval_ms, config.handover_interval_ms),
        stopwatch=metrics.decisions if metrics else NoStopwatch(),
        internal_topics=internal_topics(config),
        run_blocking=run_in_thread,
    )
    entry = ControllerEntry(config.controller_id, address, config.external_address)
    service = ControllerService(
        environment,
        entry,
        lease_ttl_seconds=config.lease_ttl_seconds,
        host=socket.gethostname(),
    )
    admin = MeteredAdmin(service, metrics.decisions) if metrics else service
    explained = ExplainingService(service, Explainer(clock), callers)
    return Parts(service, admin, explained, store, state_changes, metrics)


def pressure_reports(
    config: ControllerConfig, parts: Parts, ports: Sequence[int]
) -> PressureReports:
    """`ports`: those that it listens on."""
    standstill, service = PauseMeter(), parts.service
    reports = PressureReports(
        parts.store,
        Keys(config.cluster).controller_pressure(config.controller_id),
        SystemClock(),
        lambda: measure_usage(ports, standstill),
        lambda: service.may_write,
        config.max_connections_per_client,
        standstill,
    )
    service.own_pressures = lambda: reports.current
    service.on_memory_shortage = MemoryReserve(END_AFTER_FAULT_SECONDS).release
    return reports


async def add_services(server: grpc.aio.Server, parts: Parts) -> None:
    """Adds the services for administrators, brokers and controllers."""
    add_AdminServiceServicer_to_server(AdminServicer(parts.admin), server)
    add_ControllerServiceServicer_to_server(ControllerServicer(parts.service), server)
    inspect = InspectServicer(parts.explained, parts.state_changes)
    add_InspectServiceServicer_to_server(inspect, server)
    add_standard_services(server, names_in(admin_pb2, controller_pb2, inspect_pb2))


async def add_external_services(server: grpc.aio.Server, parts: Parts) -> None:
    """Adds the services for clients of `external_listen`, without those for brokers."""
    addresses = ExternalAddresses(parts.service.known_services)
    add_AdminServiceServicer_to_server(ExternalAdminServicer(parts.admin, addresses), server)
    inspect = ExternalInspectServicer(parts.explained, parts.state_changes, addresses)
    add_InspectServiceServicer_to_server(inspect, server)
    add_standard_services(server, names_in(admin_pb2, inspect_pb2))


def serve_metrics(config: ControllerConfig, parts: Parts, callers: Callers) -> MetricsServer | None:
    """Returns None if nothing is measured. Raises `MetricsUnavailableError`."""
    if parts.metrics is None:
        return None
    collect = partial(parts.metrics.collect, parts.service)
    closed = closed_metrics_connections(callers, SystemClock())
    return serve(config, CONTROLLER_METRICS, with_callers(collect, callers), closed)


def names_in(*modules: ModuleType) -> list[str]:
    """The names of the services that these modules of generated code describe."""
    return [
        service.full_name
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
    ]


def leader_balancing(config: ControllerConfig) -> LeaderBalancing | None:
    if not config.leader_balance:
        return None
    return LeaderBalancing(config.leader_balance_interval_ms, config.leader_imbalance_percent)


def internal_topics(config: ControllerConfig) -> list[InternalTopic]:
    if not config.state_changes_topic:
        return []
    return [state_changes_topic(config.state_changes_replication_factor)]


async def run_in_thread(work: Callable[[], None]) -> None:
    await asyncio.to_thread(work)


async def _run_until(
    stopping: asyncio.Event, service: ControllerService, log: structlog.typing.FilteringBoundLogger
) -> int:
    running = asyncio.create_task(service.run())
    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    asked.cancel()
    outcome, _ = await asyncio.gather(running, asked, return_exceptions=True)
    if isinstance(outcome, StoreError):
        log.error("controller_refuses", problem=str(outcome))
        return EXIT_FAULT
    if isinstance(outcome, Exception) and is_memory_shortage(outcome):
        end_within(END_AFTER_FAULT_SECONDS)
        # The traceback does not show the cause.
        log.critical("crashed", why=described(outcome))
        return EXIT_FAULT
    if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
        raise outcome
    log.info("controller_stopped")
    return 0


if __name__ == "__main__":
    process_init.finish_startup()
    status = main()
    process_init.prepare_exit()
    sys.exit(status)
