"""Composition root of the broker process (`python -m tidelog_broker`)."""

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
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from types import ModuleType
from typing import NamedTuple

import grpc.aio
import structlog
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tidelog import record_batch
from tidelog.caller_limits import Callers
from tidelog.client.cluster_explainer import Explainer
from tidelog.memory_shortage import is_memory_shortage
from tidelog.model import Batch
from tidelog.record_limits import RECORD_LIMITS
from tidelog.rpc.admission import new_callers
from tidelog.rpc.channels import new_server
from tidelog.rpc.health import HealthService
from tidelog.v1 import (
    broker_pb2,
    broker_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    replica_control_pb2,
    replica_control_pb2_grpc,
    replica_pb2,
    replica_pb2_grpc,
    scrub_pb2,
    scrub_pb2_grpc,
)
from tidelog_broker.background import own_threads
from tidelog_broker.boundaries import Boundaries
from tidelog_broker.broker import Broker
from tidelog_broker.broker_config import BrokerConfig
from tidelog_broker.edge.broker_service import BrokerService, client_service
from tidelog_broker.edge.controller_client import GrpcControllers
from tidelog_broker.edge.external_broker_service import ExternalBrokerService
from tidelog_broker.edge.metered_service import MeteredBrokerService
from tidelog_broker.edge.replica_client import GrpcPeers
from tidelog_broker.edge.replica_control_service import ReplicaControlService
from tidelog_broker.edge.replica_service import ReplicaService
from tidelog_broker.edge.scrub_service import ScrubService
from tidelog_broker.edge.start_gate import StartGate
from tidelog_broker.incarnation import EXIT_FAULT, run_incarnation
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.disk_reserve import with_reserve
from tidelog_broker.log.log_errors import describe_os_error
from tidelog_broker.membership.known_services import CachedServices
from tidelog_broker.membership.rejected_start import report_rejected_start
from tidelog_broker.metrics.broker_metrics import BrokerMetrics
from tidelog_broker.metrics.request_meter import (
    MeteredPeers,
    ReplicaFetchCall,
    metered_replica_fetch,
)
from tidelog_broker.storage.data_directory import (
    DataDirectory,
    DataDirectoryError,
    stored_identity,
)
from tidelog_broker.storage.directory_lock import hold_lock
from tidelog_broker.storage.disk_times import DiskTimes
from tidelog_broker.storage.disk_use import disk_use
from tidelog_broker.storage.log_syncer import MAX_CONCURRENT_SYNCS
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.config import load
from tidelog_runtime.external_addresses import ExternalAddresses
from tidelog_runtime.garbage_collection import idle_garbage_collection
from tidelog_runtime.memory_reserve import end_within, started_executor
from tidelog_runtime.metadata.broker_directories import RejectedStart, RejectionCause
from tidelog_runtime.metadata.cluster_id import held_cluster
from tidelog_runtime.metadata.etcd import EtcdStore, put_directly
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.store import MetadataStore, StoreError, StoreUnavailableError
from tidelog_runtime.pressure.detection import Usage
from tidelog_runtime.pressure.idle_connections import closing_idle_connections
from tidelog_runtime.pressure.process_pauses import PauseMeter
from tidelog_runtime.pressure.reporting import (
    HasRegistered,
    PressureReports,
    reporting_pressure,
)
from tidelog_runtime.pressure.usage import measure_usage
from tidelog_runtime.telemetry.external_inspect import ExternalInspectServicer
from tidelog_runtime.telemetry.inspect_service import ExplainingService, InspectServicer
from tidelog_runtime.telemetry.logging import configure_logging
from tidelog_runtime.telemetry.metrics.broker_catalogue import BROKER_METRICS
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
from tidelog_runtime.telemetry.state_change_publisher import publishing

MAX_DECOMPRESSED_BATCH_BYTES = RECORD_LIMITS.max_decoded_bytes
SERVER_GRACE_S = 1.0
# Time limit after a fault for the whole shutdown except the leadership transfer.
END_AFTER_FAULT_S = 10.0
# Enough threads for all flushes, cold reads and single background tasks that run at once. Syncs of
# `synced` topics have their own.
MAX_BLOCKING_THREADS = 24
EXIT_CANNOT_START = 1
# How long a start waits for the feature level before it opens the data directory. Without an
# answer the level is checked later, before the logs are opened.
LEVEL_CHECK_TIMEOUT_S = 2.0

_log = structlog.get_logger()


class StartError(Exception):
    """The broker cannot start; the message says why, and what to do."""

    def __init__(self, message: str, cause: RejectionCause) -> None:
        super().__init__(message)
        self.cause = cause


def boot_id(path: Path) -> str:
    """Returns the id of the machine's current boot, or an empty string if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


async def run_in_thread(work: Callable[[], None]) -> None:
    await asyncio.to_thread(work)


def timestamps_of(batch: Batch) -> Sequence[int]:
    return record_batch.decode_timestamps(batch)


class Parts(NamedTuple):
    """The parts of a broker process.

    - `metrics`: None if nothing is measured.
    - `callers`: the callers of all gRPC servers of the process.
    """

    broker: Broker
    metrics: BrokerMetrics | None
    callers: Callers
    disk_times: DiskTimes


async def check_level(store: MetadataStore, config: BrokerConfig) -> None:
    """Raises `UnsupportedLevelError` before anything in the data directory is changed."""
    with suppress(StoreUnavailableError, TimeoutError):
        async with asyncio.timeout(LEVEL_CHECK_TIMEOUT_S):
            await held_cluster(store, Keys(config.cluster))


def new_broker(config: BrokerConfig, store: MetadataStore, clock: SystemClock) -> Parts:
    rng = random.SystemRandom()
    disk_times = DiskTimes(clock)
    disk = with_reserve(OsDisk(disk_times.timed), PurePath(config.data_dir), clock)
    state_changes = StateChangeLog(config.service, clock)
    metrics = None
    if config.metrics_address is not None:
        metrics = BrokerMetrics(state_changes, time.perf_counter)
    peers = GrpcPeers()
    broker = Broker(
        config,
        Boundaries(
            store=store,
            disk=disk,
            data_directory=DataDirectory.open(
                disk,
                PurePath(config.data_dir),
                broker_id=config.broker_id,
                boot_id=boot_id(config.boot_id_file),
                rng=rng,
            ),
            peers=MeteredPeers(peers, metrics.requests) if metrics else peers,
            controllers=GrpcControllers(),
            clock=clock,
            rng=rng,
            run_blocking=run_in_thread,
            run_sync=own_threads(MAX_CONCURRENT_SYNCS, "sync"),
            check_batch=partial(
                record_batch.check, max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES
            ),
            timestamps_of=timestamps_of,
            without_deltas=record_batch.without_deltas,
            state_changes=state_changes,
            read_disk_use=partial(disk_use, config.data_dir),
            host=socket.gethostname(),
            cpu_seconds=time.thread_time,
        ),
    )
    broker.faults.prepare_end(config.shutdown_timeout_ms / 1_000 + END_AFTER_FAULT_S)
    if metrics is not None:
        metrics.watch(broker.store)
    return Parts(broker, metrics, new_callers(config.caller_limits), disk_times)


def add_services(server: grpc.aio.Server, parts: Parts, health: HealthService) -> None:
    """Adds the services for clients, brokers and controllers."""
    broker, metrics, *_ = parts
    replica_fetch: ReplicaFetchCall = broker.replica_fetch.handle
    if metrics is not None:
        replica_fetch = metered_replica_fetch(replica_fetch, metrics.requests)
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(client_service_of(parts), server)
    replica_pb2_grpc.add_ReplicaServiceServicer_to_server(
        ReplicaService(replica_fetch, broker.replica_fetch.complete_early, broker.stopped), server
    )
    replica_control_pb2_grpc.add_ReplicaControlServiceServicer_to_server(
        ReplicaControlService(broker.commands, broker.stopped, broker.cache.state_at), server
    )
    scrub_pb2_grpc.add_ScrubServiceServicer_to_server(
        ScrubService(broker.scrubber, lambda: broker.divergences.count), server
    )
    explained = ExplainingService(broker.inspection, Explainer(SystemClock()), parts.callers)
    inspect_pb2_grpc.add_InspectServiceServicer_to_server(
        InspectServicer(explained, broker.state_changes), server
    )
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    add_reflection(
        server, (broker_pb2, replica_pb2, replica_control_pb2, inspect_pb2, scrub_pb2, health_pb2)
    )


def add_external_services(
    server: grpc.aio.Server, parts: Parts, health: HealthService, config: BrokerConfig
) -> None:
    """Adds the client services of `external_listen`. Brokers and controllers get none there."""
    broker = parts.broker
    addresses = ExternalAddresses(CachedServices(broker.cache, config.broker_id, config))
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(
        ExternalBrokerService(client_service_of(parts), addresses), server
    )
    explained = ExplainingService(broker.inspection, Explainer(SystemClock()), parts.callers)
    inspect_pb2_grpc.add_InspectServiceServicer_to_server(
        ExternalInspectServicer(explained, broker.state_changes, addresses), server
    )
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    add_reflection(server, (broker_pb2, inspect_pb2, health_pb2))


def client_service_of(parts: Parts) -> BrokerService:
    broker, metrics, *_ = parts
    if metrics is None:
        return client_service(broker)
    return MeteredBrokerService(broker, metrics.requests)


def add_reflection(server: grpc.aio.Server, modules: Sequence[ModuleType]) -> None:
    names = [
        service.full_name
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
    ]
    reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], server)


def listen(server: grpc.aio.Server, address: str, setting: str) -> str:
    """Binds the server and returns the address with its port.

    Raises `StartError`, which names the setting, if the port is in use or the host is not an
    address of this machine.
    """
    host, _, wanted = address.rpartition(":")
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if port == 0:
        raise StartError(
            f"cannot listen on {address}: port {wanted} is in use, or {host} is not an address of "
            f"this machine; choose another with {setting}",
            RejectionCause.ADDRESS,
        )
    return f"{host}:{port}"


def serve_metrics(config: BrokerConfig, parts: Parts) -> MetricsServer | None:
    """Serves metrics from now on, also while the logs are being opened.

    Returns None if they are off. Raises `MetricsUnavailableError`.
    """
    broker, metrics, callers, _ = parts
    if metrics is None:
        return None
    collect = partial(metrics.collect, broker)
    closed = closed_metrics_connections(callers, SystemClock())
    return serve(config, BROKER_METRICS, with_callers(collect, callers), closed)


class GrpcEdge:
    """One bound server with its services for each listener."""

    def __init__(
        self,
        servers: Sequence[grpc.aio.Server],
        health: HealthService,
        address: str,
    ) -> None:
        self._servers = servers
        self._health = health
        self._address = address

    async def start(self) -> str:
        for server in self._servers:
            await server.start()
        return self._address

    def set_serving(self, serving: bool) -> None:
        self._health.set_serving(serving)

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop(SERVER_GRACE_S) for server in self._servers))


async def run(config: BrokerConfig) -> int:
    """Serves until a signal or a fault. Returns the exit status."""
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(started_executor(MAX_BLOCKING_THREADS, "blocking"))
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop_requested.set)
    clock = SystemClock()
    store = EtcdStore(config.etcd_endpoints, clock=clock, rng=random.SystemRandom())
    try:
        await check_level(store, config)
    except StoreError:
        await store.close()
        raise
    parts = new_broker(config, store, clock)
    broker = parts.broker
    gate = StartGate(lambda: broker.start.rejection_reason(config.broker_id))
    servers = [new_server(parts.callers, [gate])]
    health = HealthService()
    add_services(servers[0], parts, health)
    bound = listen(servers[0], config.listen, "listen")
    listening = [bound]
    if config.external_listen is not None:
        servers.append(new_server(parts.callers, [gate]))
        add_external_services(servers[1], parts, health, config)
        listening.append(listen(servers[1], config.external_listen, "external_listen"))
    ports = [int(address.rpartition(":")[2]) for address in listening]
    edge = GrpcEdge(servers, health, config.advertised_address or bound)
    metrics_server = serve_metrics(config, parts)
    all_ports = with_metrics_port(ports, metrics_server)

    async def live_brokers() -> list[str]:
        return [known.registration.address for _, known in sorted(broker.cache.brokers.items())]

    try:
        async with (
            idle_garbage_collection(),
            publishing(broker.state_changes, live_brokers, config) as hasten_publishing,
            reporting_pressure(pressure_reports(config, parts, all_ports)),
            closing_idle_connections(parts.callers, ports, SystemClock()),
        ):
            return await run_incarnation(broker, edge, stop_requested, on_left=hasten_publishing)
    finally:
        if metrics_server is not None:
            metrics_server.stop()
        broker.state_changes.flush()


def pressure_reports(config: BrokerConfig, parts: Parts, ports: Sequence[int]) -> PressureReports:
    """Returns the pressure reports of this process. `ports`: the ports that it listens on."""
    broker, disk_times = parts.broker, parts.disk_times
    key = Keys(config.cluster).pressure(config.broker_id)
    standstill = PauseMeter()

    def usage() -> Usage:
        disk_ms, operation = disk_times.slowest(standstill.gaps())
        used = measure_usage(ports, standstill)
        return replace(used, disk_ms=disk_ms, disk_operation=operation)

    reports = PressureReports(
        broker.store,
        key,
        SystemClock(),
        usage,
        HasRegistered(lambda: config.broker_id in broker.cache.brokers),
        config.max_connections_per_client,
        standstill,
        partial(put_directly, config.etcd_endpoints),
    )
    broker.inspection.own_pressures = lambda: (*reports.current, *broker.scrubber.pressures())
    broker.inspection.standstills = standstill.recent
    return reports


async def report_rejection(config: BrokerConfig, error: Exception, why: str) -> None:
    """Reports to the cluster why this broker does not start, if etcd can be reached."""
    clock = SystemClock()
    identity = stored_identity(OsDisk(), config.data_dir)
    rejected = RejectedStart(
        cause_of(error),
        why,
        clock.wall_ms(),
        config.advertised_address or config.listen,
        socket.gethostname(),
        str(config.data_dir),
        identity.directory_id if identity is not None else "",
    )
    store = EtcdStore(config.etcd_endpoints, clock=clock, rng=random.SystemRandom())
    try:
        await report_rejected_start(store, config.cluster, config.broker_id, rejected, identity)
    finally:
        await store.close()


def cause_of(error: Exception) -> RejectionCause:
    cause = getattr(error, "cause", None)
    if isinstance(cause, RejectionCause):
        return cause
    if isinstance(error, StoreError):
        return RejectionCause.STORE
    return RejectionCause.DISK if isinstance(error, OSError) else RejectionCause.OTHER


def try_to_report(config: BrokerConfig, error: Exception, why: str) -> None:
    """Reports why this broker does not start. The report may fail for the same reason."""
    with suppress(Exception):
        uvloop.run(report_rejection(config, error, why))


def main() -> int:
    config = load(BrokerConfig, sys.argv[1:])
    configure_logging(
        config.service,
        log_level=config.log_level,
        log_format=config.log_format,
    )
    try:
        with hold_lock(config.data_dir):
            return uvloop.run(run(config))
    except (
        StartError,
        DataDirectoryError,
        MetricsUnavailableError,
        StoreError,
        OSError,
    ) as error:
        why = describe_os_error(error) if isinstance(error, OSError) else str(error)
        _log.critical("cannot_start", why=why)
        try_to_report(config, error, why)
        return EXIT_CANNOT_START
    except MemoryError as error:
        end_within(END_AFTER_FAULT_S)
        why = "the process may not use more memory; raise its limit"
        _log.critical("cannot_start", why=why)
        try_to_report(config, error, why)
        return EXIT_CANNOT_START
    except Exception as error:
        if is_memory_shortage(error):
            end_within(END_AFTER_FAULT_S)
            # The event loop starts a thread when it closes. The broker has ended before.
            _log.critical("out_of_memory", why="no thread could be started to end the process")
            return EXIT_FAULT
        # A bug. Without this report `explain` would still show the reason of an earlier start.
        try_to_report(config, error, f"{type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    process_init.finish_startup()
    status = main()
    process_init.prepare_exit()
    sys.exit(status)
