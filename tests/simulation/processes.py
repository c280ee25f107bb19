"""Machines, and the processes that run on them: brokers, controllers, clients.

Each is the production object over simulated boundaries, composed as in its `__main__`. A
supervisor restarts a service that has ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar, cast

import structlog

from simulation.loop import SimProcess
from simulation.machines import Blocking, Machine
from simulation.network import CallFailedError, Serving
from simulation.store import SimStore
from simulation.transports import (
    CONTEXT,
    REPORT_DISK,
    REPORT_UNREACHABLE_LEADERS,
    Refusal,
    SimConnections,
    SimControllers,
    SimDialer,
    SimPeers,
    SimReplicaControl,
)
from simulation.twins import machine_at
from tidelog import record_batch
from tidelog.client import Admin, Consumer, Producer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.feature_levels import SUPPORTED, LevelRange
from tidelog.model import Batch
from tidelog.rpc.status import from_status
from tidelog_broker.boundaries import Boundaries
from tidelog_broker.broker import Broker
from tidelog_broker.broker_config import BrokerConfig
from tidelog_broker.edge.broker_service import BrokerService, client_service
from tidelog_broker.incarnation import run_incarnation
from tidelog_broker.membership.directory_binding import BrokerIdInUseError
from tidelog_broker.membership.rejected_start import report_rejected_start
from tidelog_broker.storage.data_directory import DataDirectory, DataDirectoryError, stored_identity
from tidelog_controller.core.write_pace import INTERVALS, Intervals
from tidelog_controller.edge.admin import AdminServicer
from tidelog_controller.shell.event_loop import Environment
from tidelog_controller.shell.service import ControllerService
from tidelog_runtime.metadata.broker_directories import (
    RejectedStart,
    RejectionCause,
    decode_broker_directory,
)
from tidelog_runtime.metadata.cluster_id import UnsupportedLevelError
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.metadata.schema import ControllerEntry
from tidelog_runtime.metadata.store import StoreError
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

if TYPE_CHECKING:
    from simulation.world import World

T = TypeVar("T")

MAX_DECOMPRESSED_BATCH_BYTES = 1 << 20
RESTART_DELAY_S = 1.0
DATA_DIR = PurePath("/data")


def timestamps_of(batch: Batch) -> list[int]:
    return record_batch.decode(batch).timestamps_ms


class Service:
    """A process that serves: each call becomes a task of it."""

    def __init__(self, world: World, host: str, address: str) -> None:
        self._world = world
        self.host = host
        self.address = address
        self.machine: Machine = Machine(host, world.loop)
        self.incarnation = 0
        # The feature levels of the release with which it is started next.
        self.levels: LevelRange = SUPPORTED
        self.process: SimProcess | None = None
        self.exit_status: int | None = None
        self.stop_requested: asyncio.Event | None = None
        self.ended = asyncio.Event()
        self.ended.set()
        # The process does not start while this is above 0.
        self._holds = 0
        world.network.host(host)

    @property
    def alive(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        if self.process is not None:
            return
        self.incarnation += 1
        self.exit_status = None
        process = self.process = SimProcess(self.host, self.incarnation)
        self.ended.clear()
        self.stop_requested = asyncio.Event()
        self._world.trace("started", process=process.name)
        self._world.loop.spawn(process, self._run(process))

    def kill(self, *, noticed: bool = True) -> None:
        """Sends SIGKILL. `noticed`: the machine runs on and resets connections."""
        process = self.process
        if process is None:
            return
        self._world.trace("killed", process=process.name)
        self._world.loop.kill(process)
        self._gone(process, noticed=noticed)

    def pause(self) -> None:
        if self.process is not None:
            self._world.loop.pause(self.process)

    def resume(self) -> None:
        if self.process is not None:
            self._world.loop.resume(self.process)

    def request_stop(self) -> None:
        """Sends SIGTERM; a paused process receives it when it resumes."""
        if self.process is not None and self.stop_requested is not None:
            loop = self._world.loop
            loop.call_soon(self.stop_requested.set, context=self.process.context)

    async def terminate(self) -> None:
        """Sends SIGTERM, and returns when the process has ended."""
        self.request_stop()
        await self.ended.wait()

    def hold_down(self) -> None:
        """Prevents a start until `release` was called as often."""
        self._holds += 1

    def release(self) -> None:
        """Starts it if nothing else holds it down. If it is still stopping, the supervisor does."""
        self._holds = max(0, self._holds - 1)
        if self._holds == 0:
            self.start()

    def release_all(self) -> None:
        self._holds = 0
        self.release()

    async def _run(self, process: SimProcess) -> None:
        status = await self._life(process)
        self.exit_status = status
        self._world.trace("ended", process=process.name, status=status)
        process.alive = False
        self._gone(process, noticed=True)

    def _restart(self) -> None:
        if self._holds == 0:
            self.start()

    def _gone(self, process: SimProcess, *, noticed: bool) -> None:
        """Notes the end. A supervisor starts it again, unless something holds it down."""
        self._world.network.process_ended(process, noticed=noticed)
        self.process = None
        self._forget()
        self.ended.set()
        loop = self._world.loop
        loop.call_later(RESTART_DELAY_S, self._restart, context=loop.world_context)

    def _forget(self) -> None:
        raise NotImplementedError

    async def _life(self, process: SimProcess) -> int:
        raise NotImplementedError


class _Edge:
    """Makes a task of each call, in the server's process."""

    def __init__(
        self,
        world: World,
        process: SimProcess,
        answer: Callable[[str, Any], Coroutine[Any, Any, object]],
    ) -> None:
        self._world = world
        self.process = process
        self._answer = answer

    def serve(self, serving: Serving) -> None:
        serving.task = self._world.loop.create_task(self._serve(serving))

    async def _serve(self, serving: Serving) -> None:
        answer: object
        try:
            answer = await self._answer(serving.call.kind, serving.call.request)
        except Refusal as refusal:
            answer = from_status(refusal.error, serving.call.target)
        except asyncio.CancelledError:
            return
        except Exception as error:
            # To a caller it would be a failed call like any other.
            self._world.loop.fail(error)
            return
        serving.reply(answer)


class _BrokerEdge(_Edge):
    """Implements `tidelog_broker.incarnation.Edge`."""

    def __init__(
        self,
        world: World,
        process: SimProcess,
        address: str,
        answer: Callable[[str, Any], Coroutine[Any, Any, object]],
    ) -> None:
        super().__init__(world, process, answer)
        self._address = address

    async def start(self) -> str:
        self._world.network.listen(self._address, self)
        return self._address

    def set_serving(self, serving: bool) -> None:
        pass

    async def stop(self) -> None:
        self._world.network.stop_listening(self._address)


class BrokerProcess(Service):
    """A broker over all its incarnations.

    - `host`: of a second process with this broker's id
    - `may_replace_directory`: an operator releases the id's directory at each start
    - `rejected`: how many starts were, because the id belongs to another directory
    """

    def __init__(self, world: World, broker_id: int, host: str = "") -> None:
        host = host or f"broker-{broker_id}"
        super().__init__(world, host, f"{host}:7500")
        self.broker_id = broker_id
        self.machine_id = machine_at(broker_id, self.address)
        self.may_replace_directory = False
        self.rejected = 0
        self.broker: Broker | None = None
        self.config = BrokerConfig(
            broker_id=broker_id,
            data_dir=cast(Any, "/data"),
            listen=self.address,
            cluster="sim",
            **world.settings.broker_options,
        ).model_copy(update={"replica_lag_max_bytes": world.lag_max_bytes})

    def _forget(self) -> None:
        self.broker = None

    async def _life(self, process: SimProcess) -> int:
        """Does what `tidelog_broker.__main__` does."""
        world = self._world
        rng = world.rng(f"{process.name}/broker")
        try:
            broker = self._new_broker(process, rng)
        except (DataDirectoryError, OSError) as error:
            return await self._cannot_start(process, error)
        self.broker = broker
        assert self.stop_requested is not None
        edge = _BrokerEdge(
            world, process, self.address, partial(self._answer, broker, client_service(broker))
        )
        try:
            return await run_incarnation(broker, edge, self.stop_requested)
        except (DataDirectoryError, UnsupportedLevelError, OSError) as error:
            return await self._cannot_start(process, error)

    async def _cannot_start(self, process: SimProcess, error: Exception) -> int:
        world = self._world
        structlog.get_logger().critical("cannot_start", why=str(error))
        cause = getattr(error, "cause", RejectionCause.DISK)
        store = SimStore(world.etcd, world.network, process)
        rejected = RejectedStart(
            cause, str(error), self.machine.clock.wall_ms(), self.address, self.host
        )
        identity = stored_identity(self.machine.disk, DATA_DIR)
        await report_rejected_start(store, "sim", self.broker_id, rejected, identity)
        await store.close()
        if isinstance(error, BrokerIdInUseError):
            self.rejected += 1
        return 1

    def _given_up_directory(self) -> str:
        """Returns the `replace_directory` of an operator who releases the present directory."""
        world = self._world
        record = world.store_data.get(world.keys.directory(self.broker_id))
        if record is None or not self.may_replace_directory:
            return ""
        return decode_broker_directory(record.value).directory_id

    def _new_broker(self, process: SimProcess, rng: random.Random) -> Broker:
        world, disk = self._world, self.machine.disk
        config = self.config.model_copy(update={"replace_directory": self._given_up_directory()})
        disk_rng = world.rng(f"{process.name}/disk")
        return Broker(
            config,
            Boundaries(
                store=SimStore(world.etcd, world.network, process),
                disk=disk,
                data_directory=DataDirectory.open(
                    disk,
                    DATA_DIR,
                    broker_id=self.broker_id,
                    boot_id=self.machine.boot_id,
                    rng=rng,
                    levels=self.levels,
                ),
                peers=SimPeers(world),
                controllers=SimControllers(world),
                clock=self.machine.clock,
                rng=rng,
                run_blocking=Blocking(disk_rng, disk),
                run_sync=Blocking(disk_rng, disk, syncs=True),
                check_batch=partial(
                    record_batch.check, max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES
                ),
                timestamps_of=timestamps_of,
                without_deltas=record_batch.without_deltas,
                state_changes=StateChangeLog(self.host, self.machine.clock),
                host=self.host,
                levels=self.levels,
            ),
        )

    async def _answer(
        self, broker: Broker, service: BrokerService, kind: str, request: Any
    ) -> object:
        rejection_reason = broker.start.rejection_reason(self.broker_id)
        if rejection_reason:
            return CallFailedError(f"UNAVAILABLE: {rejection_reason}")
        if kind == "replica_fetch":
            return await broker.replica_fetch.handle(request)
        if kind == "hurry":
            broker.replica_fetch.complete_early(request)
            return None
        if kind == "watch":
            return await self._watch(broker, request)
        command = getattr(broker.commands, kind, None)
        if command is not None:
            return await command(request)
        return await getattr(service, _camel(kind))(request, CONTEXT)

    async def _watch(self, broker: Broker, broker_epoch: int) -> object:
        """Does what `ReplicaControlService.Watch` does."""
        if broker_epoch < broker.manager.broker_epoch:
            return TidelogError(ErrorCode.STALE_BROKER_EPOCH, "a former life is watched")
        await broker.stopped.wait()
        return None


_CAMEL: dict[str, str] = {}


def _camel(kind: str) -> str:
    name = _CAMEL.get(kind)
    if name is None:
        name = _CAMEL[kind] = "".join(part.capitalize() for part in kind.split("_"))
    return name


class ControllerProcess(Service):
    def __init__(self, world: World, controller_id: int) -> None:
        super().__init__(world, f"controller-{controller_id}", f"controller-{controller_id}:7400")
        self.controller_id = controller_id
        self.service: ControllerService | None = None

    def _forget(self) -> None:
        self.service = None

    async def _life(self, process: SimProcess) -> int:
        """Does what `tidelog_controller.__main__` does."""
        world, log = self._world, structlog.get_logger()
        state_changes = StateChangeLog(self.host, self.machine.clock)
        store = MeasuredStore(
            SimStore(world.etcd, world.network, process),
            world.keys.cluster,
            self.machine.clock,
            state_changes,
        )
        timeout_ms = world.settings.command_timeout_ms
        service = ControllerService(
            Environment(
                store=store,
                keys=world.keys,
                clock=self.machine.clock,
                rng=world.rng(f"{process.name}/controller"),
                connect=lambda address: cast(Any, SimReplicaControl(world, address, timeout_ms)),
                dialer=SimDialer(world),
                log=log,
                state_changes=state_changes,
                command_timeout_ms=timeout_ms,
                # Intervals between writes prevent some interleavings of many changes.
                intervals=world.rng(f"{process.name}/pace").choice((Intervals(0, 0), INTERVALS)),
                levels=self.levels,
            ),
            ControllerEntry(self.controller_id, self.address),
            lease_ttl_seconds=world.settings.lease_ttl_seconds,
        )
        self.service = service
        admin = AdminServicer(service)

        async def answer(kind: str, request: Any) -> object:
            if kind == REPORT_UNREACHABLE_LEADERS:
                return service.report(request)
            if kind == REPORT_DISK:
                return service.report_disk(request)
            return cast(object, await getattr(admin, _camel(kind))(request, CONTEXT))

        world.network.listen(self.address, _Edge(world, process, answer))
        assert self.stop_requested is not None
        running = asyncio.create_task(service.run())
        asked = asyncio.create_task(self.stop_requested.wait())
        await asyncio.wait([running, asked], return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        asked.cancel()
        outcome, _ = await asyncio.gather(running, asked, return_exceptions=True)
        world.network.stop_listening(self.address)
        await store.close()
        if isinstance(outcome, StoreError):
            log.error("controller_refuses", problem=str(outcome))
            return 1
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
        return 0


class ClientProcess:
    """A program that uses the client library."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self.host = f"client-{name}"
        self.process = SimProcess(self.host, 1, observed=False)
        self._made = 0
        world.network.host(self.host)

    def producer(self, bootstrap: Sequence[str] | None = None, **options: Any) -> Producer:
        return Producer(bootstrap or self._world.bootstrap, **self._boundaries(), **options)

    def consumer(self, bootstrap: Sequence[str] | None = None, **options: Any) -> Consumer:
        return Consumer(bootstrap or self._world.bootstrap, **self._boundaries(), **options)

    def admin(self, bootstrap: Sequence[str] | None = None, **options: Any) -> Admin:
        return Admin(bootstrap or self._world.bootstrap, **self._boundaries(), **options)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._world.loop.spawn(self.process, work)
        task.add_done_callback(self._ended)
        return task

    def kill(self) -> None:
        self._world.loop.kill(self.process)

    def trace(self, event: str, **fields: object) -> None:
        self._world.trace(event, **fields)

    def _boundaries(self) -> dict[str, Any]:
        self._made += 1
        return {
            "connections": SimConnections(self._world),
            "clock": self._world.loop,
            "rng": self._world.rng(f"{self.host}/{self._made}"),
        }

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._world.fail(error)
