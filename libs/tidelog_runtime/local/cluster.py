"""A complete cluster on one machine: etcd, controllers and brokers as separate processes.

The same programs run as in production, with addresses and directories that are chosen here. For the
demo, tests and first steps."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidelog_runtime.config import METRICS_OFF, METRICS_PORT_OFFSET
from tidelog_runtime.local import ClusterError, NoSuchPartError, cluster_file
from tidelog_runtime.local.addresses import (
    BROKER_BASE_PORT,
    CONTROLLER_BASE_PORT,
    GATEWAY,
    GATEWAY_PORT,
    Addresses,
    part_name,
)
from tidelog_runtime.local.cluster_file import (
    CLUSTER_FILE,
    BrokerPart,
    ClusterFile,
    ControllerPart,
    GatewayPart,
    Setting,
    read_cluster_file,
)
from tidelog_runtime.local.cluster_view import ClusterView, answers_http, open_view
from tidelog_runtime.local.commands import ETCD_VARIABLE, ClusterOptions
from tidelog_runtime.local.data_directory import (
    FIRST_START_BYTES,
    LATER_START_BYTES,
    DirectoryLock,
    check_space,
    check_writable,
)
from tidelog_runtime.local.etcd_member import LocalEtcd
from tidelog_runtime.local.members import LocalMember, Members, describe_death, member_of, stop_all
from tidelog_runtime.local.process import LocalProcess, environment_without
from tidelog_runtime.local.prometheus_targets import TARGETS_FILE, write_targets
from tidelog_runtime.metadata.store import StoreUnavailableError

STATE_CHANGES_REPLICATION_FACTOR = 3
READY_TIMEOUT_SECONDS = 30.0

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Programs:
    """The commands that start the services; the configuration file follows as `--config FILE`."""

    controller: Sequence[str] = (sys.executable, "-m", "tidelog_controller")
    broker: Sequence[str] = (sys.executable, "-m", "tidelog_broker")
    gateway: Sequence[str] = (sys.executable, "-m", "tidelog_admin_api")


class LocalCluster:
    """A cluster on this machine. A restart in the same directory keeps ids, data and free ports.

    - `etcd`: host:port of a running one; default: the variable TIDELOG_ETCD, or an embedded one.
    - `broker_config`, `controller_config`: settings of all brokers or controllers, by field name.
    - `usual_ports`: False leaves the well-known ports free.
    - `gateway`: whether to run the REST gateway."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        controllers: int = 2,
        etcd: str | None = None,
        cluster: str = "default",
        broker_config: Mapping[str, Setting] | None = None,
        controller_config: Mapping[str, Setting] | None = None,
        usual_ports: bool = True,
        gateway: bool = False,
        programs: Programs | None = None,
        view: Callable[[str, str], ClusterView] = open_view,
        rng: random.Random | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.cluster = cluster
        self.etcd: LocalEtcd | None = None
        self.etcd_address = ""
        self._other_etcd = etcd or os.environ.get(ETCD_VARIABLE, "")
        self._broker_ids = list(range(1, brokers + 1))
        self._controller_ids = range(1, controllers + 1)
        self._broker_config = dict(broker_config or {})
        # The state changes of a cluster with a single broker are published, too.
        factor = min(STATE_CHANGES_REPLICATION_FACTOR, brokers)
        self._controller_config = {
            "state_changes_replication_factor": factor,
            **(controller_config or {}),
        }
        self._usual_ports = usual_ports
        self._has_gateway = gateway
        self._programs = programs if programs is not None else Programs()
        self._open_view = view
        self._rng = rng if rng is not None else random.Random()
        self._members = Members()
        self._lock: DirectoryLock | None = None
        self._addresses: Addresses | None = None

    @property
    def replaced_ports(self) -> Mapping[str, tuple[int, int]]:
        """By part, its usual or previous port, which is occupied, and the one chosen instead."""
        return {} if self._addresses is None else self._addresses.replaced

    @property
    def options(self) -> ClusterOptions:
        return ClusterOptions(
            len(self._broker_ids),
            len(self._controller_ids),
            self._has_gateway,
            self._other_etcd,
        )

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses as clients take them, separated by commas."""
        return self.describe().bootstrap

    @property
    def broker_ids(self) -> Sequence[int]:
        return list(self._broker_ids)

    def broker_address(self, broker_id: int) -> str:
        return self._broker(broker_id).address

    def controller_address(self, controller_id: int) -> str:
        return self._controller(controller_id).address

    def broker_metrics(self, broker_id: int) -> str:
        """The address of the broker's metrics; empty: metrics are off."""
        return self._broker(broker_id).metrics

    def controller_metrics(self, controller_id: int) -> str:
        return self._controller(controller_id).metrics

    @property
    def gateway_address(self) -> str:
        return self._gateway().address

    @property
    def gateway_process(self) -> LocalProcess:
        return self._gateway().process

    def broker_data_dir(self, broker_id: int) -> Path:
        return self.directory / "brokers" / str(broker_id)

    def broker_process(self, broker_id: int) -> LocalProcess:
        return self._broker(broker_id).process

    def controller_process(self, controller_id: int) -> LocalProcess:
        return self._controller(controller_id).process

    def describe(self) -> ClusterFile:
        """Returns the content of `cluster.json`."""
        gateway = self._members.gateway
        return ClusterFile(
            cluster=self.cluster,
            etcd=self.etcd_address,
            controllers=[
                ControllerPart(member.id, member.address, member.process.pid, member.metrics)
                for member in self._members.controllers.values()
            ],
            brokers=[
                BrokerPart(
                    member.id,
                    member.address,
                    member.process.pid,
                    str(self.broker_data_dir(member.id)),
                    member.metrics,
                )
                for member in self._members.brokers.values()
            ],
            gateway=None if gateway is None else GatewayPart(gateway.address, gateway.process.pid),
            embedded_etcd=not self._other_etcd,
        )

    async def start(self) -> None:
        """Starts every part; `ready` waits for them.

        Raises `DirectoryInUseError` if another cluster runs in this directory."""
        self._lock = DirectoryLock(self.directory)
        try:
            previous = read_cluster_file(self.directory)
            self._check_writable()
            await self._start_etcd()
            self._plan(previous)
            for member in self._members.all():
                member.process.start()
            self._write_cluster_file()
            write_targets(self.describe(), self.directory)
        except BaseException:
            await self.stop()
            raise

    async def ready(self, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> None:
        """Returns once every started part serves.

        Each broker and controller is registered then, each broker is known to all others, a
        controller is active, and all parts answer health checks. Raises `ClusterError` if a part
        has died, or if parts are missing after the timeout."""
        view = self._open_view(self.etcd_address, self.cluster)
        missing = ["nothing has been checked"]
        try:
            async with asyncio.timeout(timeout_seconds):
                while missing:
                    self.check_alive()
                    missing = await self._missing(view)
                    if missing:
                        await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise ClusterError(
                f"the cluster is not ready after {timeout_seconds:g} s: {'; '.join(missing)}; "
                f"the logs are in {self.directory / 'logs'}"
            ) from None
        finally:
            await view.close()

    async def stop(self) -> None:
        """Stops all parts in an order that keeps every ISR full: without controllers, no partition
        fails over while the brokers stop. A part that does not end in time is killed."""
        if self._members.gateway is not None:
            await stop_all([self._members.gateway])
        await stop_all(self._members.controllers.values())
        await stop_all(self._members.brokers.values())
        if self.etcd is not None:
            await self.etcd.stop()
            self.etcd = None
        if self._lock is not None:
            # The lock also shows readers that no process runs, so a full disk or a directory that
            # is not writable may prevent this update.
            if self._members.all():
                with suppress(OSError):
                    self._write_cluster_file()
            self._lock.release()
            self._lock = None

    async def kill(self, broker_id: int) -> None:
        """Kills the broker by SIGKILL."""
        await self._broker(broker_id).process.kill()
        self._write_cluster_file()

    async def stop_broker(self, broker_id: int) -> None:
        """Stops the broker by SIGTERM, and by SIGKILL if it does not end in time."""
        await self._broker(broker_id).process.stop()
        self._write_cluster_file()

    def add_broker(self) -> int:
        """Starts another broker with the next id, and returns the id; `ready` waits for it, too.

        It gets replicas of old topics only after `Admin.add_brokers`. A later `LocalCluster` in
        this directory has to include it in `brokers`. Raises `ClusterError` before `start`."""
        if self._lock is None:
            raise ClusterError("a broker is added to a cluster that runs; start it first")
        check_space(self.directory)
        broker_id = max(self._broker_ids, default=0) + 1
        member = self._new_broker(broker_id)
        member.process.start()
        self._members.brokers[broker_id] = member
        self._broker_ids.append(broker_id)
        self._write_cluster_file()
        write_targets(self.describe(), self.directory)
        return broker_id

    def start_broker(self, broker_id: int) -> None:
        self._broker(broker_id).process.start()
        self._write_cluster_file()

    def pause(self, broker_id: int) -> None:
        """Stops the process by SIGSTOP; its connections stay open."""
        self._broker(broker_id).process.pause()

    def resume(self, broker_id: int) -> None:
        self._broker(broker_id).process.resume()

    async def kill_controller(self, controller_id: int) -> None:
        """Kills the controller by SIGKILL."""
        await self._controller(controller_id).process.kill()
        self._write_cluster_file()

    async def stop_controller(self, controller_id: int) -> None:
        await self._controller(controller_id).process.stop()
        self._write_cluster_file()

    def start_controller(self, controller_id: int) -> None:
        self._controller(controller_id).process.start()
        self._write_cluster_file()

    async def active_controller(self) -> int | None:
        """Returns the id of the elected controller, from the metadata store."""
        view = self._open_view(self.etcd_address, self.cluster)
        try:
            return await view.active_controller()
        finally:
            await view.close()

    def restart(self, name: str) -> None:
        """Starts a part that has ended, as "broker-2", or the embedded "etcd".

        Raises `ClusterError` for other names, for a running part, and if the disk is full."""
        name = part_name(name)
        processes = {process.name: process for process in self.processes()}
        if name not in processes:
            raise NoSuchPartError(f"there is no part {name!r}; there are: {', '.join(processes)}")
        process = processes[name]
        if process.running:
            raise ClusterError(f"{name} is running, as process {process.pid}")
        check_space(self.directory)
        process.start()
        self._write_cluster_file()

    def processes(self) -> list[LocalProcess]:
        """Returns every part that was started here, running or not."""
        members = [member.process for member in self._members.all()]
        return members if self.etcd is None else [self.etcd.process, *members]

    def died(self) -> list[LocalProcess]:
        """Returns the parts that ended by themselves."""
        return [process for process in self.processes() if process.died]

    def check_alive(self) -> None:
        """Raises `ClusterError`, with the last lines of its log, if a part has died."""
        died = self.died()
        if died:
            raise ClusterError("\n".join(describe_death(process) for process in died))

    async def _start_etcd(self) -> None:
        if self._other_etcd:
            host, _, port = self._other_etcd.rpartition(":")
            if not host or not port.isdecimal() or "/" in host or "," in host:
                raise ClusterError(
                    f"{ETCD_VARIABLE} is {self._other_etcd!r}; give one address as host:port, such "
                    "as 127.0.0.1:2379"
                )
            self.etcd_address = self._other_etcd
            return
        data = self.directory / "etcd"
        check_space(self.directory, LATER_START_BYTES if data.exists() else FIRST_START_BYTES)
        self.etcd = await LocalEtcd.start(data, log_path=self._log_path("etcd"))
        self.etcd_address = self.etcd.endpoint

    def _check_writable(self) -> None:
        """Raises `ClusterError` before anything starts that would have to be stopped again."""
        names = [f"controller-{i}" for i in self._controller_ids]
        names += [f"broker-{i}" for i in self._broker_ids]
        names += [GATEWAY] if self._has_gateway else []
        written = [path(name) for name in names for path in (self._config_path, self._log_path)]
        written += [] if self._other_etcd else [self._log_path("etcd")]
        replaced = (self.directory / name for name in (CLUSTER_FILE, TARGETS_FILE))
        check_writable(self.directory, written, replaced)

    def _plan(self, previous: ClusterFile | None) -> None:
        """Creates every part with its address, its configuration file and its process."""
        self._addresses = Addresses(previous, usual_ports=self._usual_ports, rng=self._rng)
        for i in self._controller_ids:
            self._members.controllers[i] = self._new_member(
                "controller",
                i,
                CONTROLLER_BASE_PORT + i,
                self._programs.controller,
                self._controller_config,
            )
        for i in self._broker_ids:
            self._members.brokers[i] = self._new_broker(i)
        if self._has_gateway:
            address = self._addresses.choose(GATEWAY, GATEWAY_PORT)
            self._members.gateway = self._new_gateway(address)

    def _new_broker(self, broker_id: int) -> LocalMember:
        own = {"data_dir": str(self.broker_data_dir(broker_id)), **self._broker_config}
        port = BROKER_BASE_PORT + broker_id
        return self._new_member("broker", broker_id, port, self._programs.broker, own)

    def _new_member(
        self,
        kind: str,
        member_id: int,
        usual_port: int,
        program: Sequence[str],
        own: Mapping[str, Setting],
    ) -> LocalMember:
        assert self._addresses is not None, "parts are made from start() on"
        name = f"{kind}-{member_id}"
        address = self._addresses.choose(name, usual_port)
        metrics = str(own.get("metrics_listen", ""))
        if not metrics:
            metrics = self._addresses.choose_metrics(name, usual_port + METRICS_PORT_OFFSET)
        settings = {
            f"{kind}_id": member_id,
            "etcd_endpoints": [self.etcd_address],
            **own,
            "metrics_listen": metrics,
        }
        process = self._process(name, program, address, settings)
        measured = "" if metrics == METRICS_OFF else metrics
        return LocalMember(member_id, address, measured, process)

    def _new_gateway(self, address: str) -> LocalMember:
        settings: dict[str, Setting] = {
            "bootstrap": [broker.address for broker in self._members.brokers.values()],
            "controllers": [c.address for c in self._members.controllers.values()],
        }
        process = self._process(GATEWAY, self._programs.gateway, address, settings)
        return LocalMember(0, address, "", process)

    def _process(
        self, name: str, program: Sequence[str], address: str, settings: Mapping[str, Setting]
    ) -> LocalProcess:
        settings = {
            "cluster": self.cluster,
            "listen": address,
            **settings,
        }
        path = self._config_path(name)
        cluster_file.write(path, settings)
        return LocalProcess(
            name,
            [*program, "--config", str(path)],
            log_path=self._log_path(name),
            environment=environment_without(settings),
        )

    async def _missing(self, view: ClusterView) -> list[str]:
        """Returns the reasons why the cluster is not ready; empty: it is ready."""
        running = [m for m in self._members.services() if m.process.running]
        try:
            registered = {
                "broker": await view.brokers(),
                "controller": await view.controllers(),
            }
            active = await view.active_controller()
        except StoreUnavailableError as error:
            return [f"etcd at {self.etcd_address} does not answer ({error})"]
        members = {"broker": self._members.brokers, "controller": self._members.controllers}
        missing = [
            f"{kind} {i} is not registered"
            for kind, addresses in registered.items()
            for i, member in members[kind].items()
            if member.process.running and addresses.get(i) != member.address
        ]
        elected = self._members.controllers.get(-1 if active is None else active)
        if elected is None or not elected.process.running:
            missing.append("no controller is active")
        serving = await asyncio.gather(*(view.serving(member.address) for member in running))
        missing.extend(
            f"{member.process.name} at {member.address} does not serve"
            for member, serves in zip(running, serving, strict=True)
            if not serves
        )
        gateway = self._members.gateway
        if gateway and gateway.process.running and not await answers_http(gateway.address):
            missing.append(f"{gateway.process.name} at {gateway.address} does not answer")
        return missing or await self._unknown_brokers(view)

    async def _unknown_brokers(self, view: ClusterView) -> list[str]:
        """Returns a line for each broker that does not know another one yet. It learns of the
        other by its watch, after the registration. Until then, it returns incomplete metadata to
        clients."""
        running = [m for m in self._members.brokers.values() if m.process.running]
        known = await asyncio.gather(*(view.brokers_known_to(m.address) for m in running))
        return [
            f"{asked.process.name} does not know {other.process.name} yet"
            for asked, addresses in zip(running, known, strict=True)
            for other in running
            if other.address not in addresses
        ]

    def _broker(self, broker_id: int) -> LocalMember:
        return member_of(self._members.brokers, "broker", broker_id)

    def _controller(self, controller_id: int) -> LocalMember:
        return member_of(self._members.controllers, "controller", controller_id)

    def _gateway(self) -> LocalMember:
        if self._members.gateway is None:
            raise ClusterError("there is no gateway; start the cluster with gateway=True")
        return self._members.gateway

    def _config_path(self, name: str) -> Path:
        return self.directory / "config" / f"{name}.toml"

    def _log_path(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    def _write_cluster_file(self) -> None:
        self.describe().write(self.directory)
