"""The processes of one machine as a cluster that faults strike.

It supports kills, pauses, relays before clients, failing disks, flipped bits, and an etcd that is
stopped. Used for quick runs and for developing this harness."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

from faults.catalogue import Ability, Timings
from faults.cluster import (
    LOAD_A_CONTROLLER,
    STIR_S,
    STIRS,
    Cut,
    LogSince,
    SecondProcess,
    Traffic,
)
from faults.compose_override import RETENTION_CHECK_INTERVAL_MS, clock_setting
from faults.local_second import LocalSecond
from faults.own_clocks import CLOCK_FILE, clock_program, find_faketime
from faults.relay import Manner
from faults.relayed_traffic import RelayedTraffic, SharedRelay
from faults.service_logs import FileLog
from faults.small_disks import SmallDisk
from tidelog.client.service_round import Identity
from tidelog.inspection.explain.observation import BROKER, CONTROLLER
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.local.cluster import LocalCluster, Programs
from tidelog_runtime.local.process import LocalProcess
from tidelog_runtime.metadata.etcd import EtcdStore
from tidelog_runtime.metadata.store import StoreError

BROKERS = 3
CONTROLLERS = 2
LAG_TIME_MAX_MS = 2_000
LEASE_TTL_S = 3
# For a machine that has other work as well.
READY_TIMEOUT_S = 180.0
ETCD = "etcd-1"
ETCD_TIMEOUT_MS = 2_000


ABILITIES = frozenset(
    {Ability.PROCESSES, Ability.CLIENT_RELAY, Ability.DATA, Ability.ETCD, Ability.SECOND}
)
NO_FAKETIME = "libfaketime is not installed"


class LocalProcesses:
    """A `Cluster` of `LocalCluster`. `small_disks`: brokers' data are on disks that can be
    filled."""

    timings = Timings(LEASE_TTL_S * 1000, LAG_TIME_MAX_MS)

    def __init__(self, directory: Path, *, small_disks: bool) -> None:
        self.abilities = ABILITIES | {Ability.FULL_DISK} if small_disks else ABILITIES
        self._clocks = directory / "clocks"
        self._seconds = count(1)
        programs = Programs()
        library = find_faketime()
        if library is not None:
            self.abilities |= {Ability.CLOCK}
            programs = Programs(broker=clock_program(self._clocks, library))
        self._cluster = LocalCluster(
            directory,
            brokers=BROKERS,
            controllers=CONTROLLERS,
            # Faults kill its etcd, so it cannot be one that was given from outside.
            etcd="",
            broker_config={
                "replica_lag_time_max_ms": LAG_TIME_MAX_MS,
                "lease_ttl_seconds": LEASE_TTL_S,
                "retention_check_interval_ms": RETENTION_CHECK_INTERVAL_MS,
            },
            controller_config={"lease_ttl_seconds": LEASE_TTL_S},
            usual_ports=False,
            programs=programs,
            rng=random.Random(),
        )
        self._relays: dict[str, SharedRelay] = {}
        self._disks: dict[str, SmallDisk] = {}
        self._stack = AsyncExitStack()
        self.routes: Mapping[str, str] = {}
        # Advertised addresses are local.
        self.own_routes: Mapping[str, str] = {}
        self.direct_routes: Mapping[str, str] = {}

    @property
    def brokers(self) -> Sequence[str]:
        return [f"broker-{i}" for i in range(1, BROKERS + 1)]

    @property
    def controllers(self) -> Sequence[str]:
        return [f"controller-{i}" for i in range(1, CONTROLLERS + 1)]

    @property
    def etcd_members(self) -> Sequence[str]:
        return [ETCD]

    @property
    def bootstrap(self) -> Sequence[str]:
        return [self._cluster.broker_address(_number(broker)) for broker in self.brokers]

    @property
    def services(self) -> Mapping[str, Identity]:
        described = self._cluster.describe()
        return {
            part.address: (role, part.id)
            for role, parts in ((BROKER, described.brokers), (CONTROLLER, described.controllers))
            for part in parts
        }

    def data_dir(self, broker: str) -> Path:
        return self._cluster.broker_data_dir(_number(broker))

    # -- processes -------------------------------------------------------------------------

    async def start(self) -> None:
        try:
            if Ability.FULL_DISK in self.abilities:
                for broker in self.brokers:
                    await self._mount(broker)
            for broker in self.brokers:
                await self.set_clock(broker, 0)
            await self._cluster.start()
            self._stack.push_async_callback(self._cluster.stop)
            await self._cluster.ready(READY_TIMEOUT_S)
            for broker in self.brokers:
                relay = SharedRelay(self._cluster.broker_address(_number(broker)))
                await relay.start()
                self._stack.push_async_callback(relay.stop)
                self._relays[broker] = relay
        except BaseException:
            await self._stack.aclose()
            raise
        self.routes = {
            self._cluster.broker_address(_number(broker)): relay.address
            for broker, relay in self._relays.items()
        }

    async def stop(self) -> None:
        await self._stack.aclose()

    async def kill(self, service: str) -> None:
        await self._process(service).kill()

    async def terminate(self, service: str) -> bool:
        process = self._process(service)
        return await process.stop() and process.exit_status == 0

    async def start_again(self, service: str) -> None:
        self._process(service).start()

    async def stir(self) -> None:
        for _ in range(STIRS):
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", LOAD_A_CONTROLLER)
            await asyncio.sleep(STIR_S)
            process.kill()
            await process.wait()

    async def pause(self, service: str) -> None:
        self._process(service).pause()

    async def resume(self, service: str) -> None:
        self._process(service).resume()

    async def incarnation(self, service: str) -> str:
        pid = self._process(service).pid
        return "" if pid is None else str(pid)

    async def is_stopped(self, service: str) -> bool:
        pid = self._process(service).pid
        return pid is not None and state_of(pid) == "T"

    def log_since_now(self, service: str) -> LogSince:
        return FileLog(self._process(service).log_path)

    async def start_second(self, broker: str, *, is_copy: bool) -> SecondProcess:
        directory = self._cluster.directory / "seconds" / str(next(self._seconds))
        config = self._cluster.directory / "config" / f"{broker}.toml"
        second = LocalSecond(broker, config, directory)
        try:
            await second.start(self.data_dir(broker) if is_copy else None)
        except BaseException:
            await second.stop()
            raise
        return second

    async def log_lines(self, service: str) -> Iterable[bytes]:
        path = self._process(service).log_path
        return path.read_bytes().splitlines(keepends=True) if path.exists() else []

    async def ended_by_themselves(self) -> list[str]:
        return [process.name for process in self._cluster.died()]

    def _process(self, service: str) -> LocalProcess:
        kind, _, number = service.rpartition("-")
        if kind == "broker":
            return self._cluster.broker_process(int(number))
        if kind == "controller":
            return self._cluster.controller_process(int(number))
        assert self._cluster.etcd is not None, "the cluster runs"
        return self._cluster.etcd.process

    # -- relays ----------------------------------------------------------------------------

    async def relay_clients(self, brokers: Sequence[str], manner: Manner) -> Traffic:
        traffic = RelayedTraffic([self._relays[broker] for broker in brokers], manner)
        await traffic.begin()
        return traffic

    async def relay_services(self, broker: str, manner: Manner) -> Traffic:
        raise NotImplementedError(Ability.SERVICE_RELAY)

    # -- unsupported --------------------------------------------------------------------------

    async def cut(self, service: str, others: Sequence[str], *, only_in: bool = False) -> Cut:
        raise NotImplementedError(Ability.NETWORK)

    async def drop(self, service: str, percent: int) -> Cut:
        raise NotImplementedError(Ability.NETWORK)

    async def etcd_leader(self) -> str:
        raise NotImplementedError(Ability.ETCD_MEMBERS)

    # -- clocks, disks and etcd --------------------------------------------------------------------

    async def set_clock(self, broker: str, ahead_s: int) -> None:
        file = self._clocks / broker / CLOCK_FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(file.write_text, clock_setting(ahead_s))

    async def _mount(self, broker: str) -> None:
        disk = self._disks[broker] = SmallDisk(self._cluster.directory / "disks" / broker)
        self._stack.push_async_callback(disk.remove)
        await disk.make()
        data_dir = self.data_dir(broker)
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        data_dir.symlink_to(disk.data_dir)

    async def fill_disk(self, broker: str) -> None:
        await asyncio.to_thread(self._disks[broker].fill)

    async def free_disk(self, broker: str) -> None:
        await asyncio.to_thread(self._disks[broker].free)

    async def etcd_answers(self, member: str) -> bool:  # noqa: ARG002 - there is one
        assert self._cluster.etcd is not None, "the cluster runs"
        store = EtcdStore(
            [self._cluster.etcd.endpoint],
            clock=SystemClock(),
            rng=random.Random(),
            request_timeout_ms=ETCD_TIMEOUT_MS,
        )
        try:
            await store.get("/")
        except StoreError:
            return False
        finally:
            await store.close()
        return True

    async def kill_all_etcd(self) -> int:
        assert self._cluster.etcd is not None, "the cluster runs"
        was_running = self._cluster.etcd.process.running
        await self._cluster.etcd.kill()
        return int(was_running)

    async def start_all_etcd(self) -> None:
        assert self._cluster.etcd is not None, "the cluster runs"
        await self._cluster.etcd.start_again()


def _number(service: str) -> int:
    return int(service.rpartition("-")[2])


def state_of(pid: int) -> str:
    """The kernel's letter for a process's state; empty if there is no process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return status.rpartition(")")[2].split()[0]
