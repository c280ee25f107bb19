"""The composed cluster as one to strike: containers, their networks, disks, logs and clocks.

Docker's command line does what a user could do. Rules in a container's network, disks that can be
filled need root on this machine, and loop mounts; without them these kinds are left out by name.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

from compose.engine import EngineError, compose_command, open_files, prepare
from faults import packet_rules
from faults.catalogue import Ability, Timings
from faults.cluster import (
    LOAD_A_CONTROLLER,
    STIR_S,
    STIRS,
    ClusterFailedError,
    Cut,
    LogSince,
    SecondProcess,
    Traffic,
)
from faults.commands import run_command
from faults.compose_override import (
    FAKETIME_DOCKERFILE,
    FAKETIME_TAG,
    addresses,
    clock_setting,
    override,
)
from faults.container_network import Rules, ServiceRelay
from faults.container_second import BROKER_PORT, ContainerSecond, read_log, remove
from faults.local_cluster import state_of
from faults.relay import Manner
from faults.relayed_traffic import RelayedTraffic, SharedRelay
from faults.service_logs import logged_ms
from faults.small_disks import SmallDisk, make_data_dir, why_no_small_disks
from tidelog.client.service_round import Identity
from tidelog.inspection.explain.observation import BROKER, CONTROLLER
from tidelog_runtime.local.addresses import choose_port

PROJECT = "tidelog-faults"
ROOT = Path(__file__).resolve().parents[2]
BROKERS = ("broker-1", "broker-2", "broker-3")
CONTROLLERS = ("controller-1", "controller-2")
ETCD_MEMBERS = ("etcd-1", "etcd-2", "etcd-3")
SERVICES = (*ETCD_MEMBERS, *CONTROLLERS, *BROKERS)
CONTROLLER_PORT = 7400
LEASE_MS = 3_000
LAG_TIME_MAX_MS = 2_000
STOP_TIMEOUT_S = 30
ETCD_TIMEOUT_S = 2
UP_TIMEOUT_S = 900.0
TAG = "faults"
ENDED = frozenset({"exited", "dead"})
# What `stir` starts and ends: as many etcd members as faults start at once, then a controller's
# work until it serves. By name: the service to imitate, and the command.
BYSTANDERS = (
    {f"{PROJECT}-like-{m}": (m, ("etcd", "--data-dir=/tmp/etcd")) for m in ETCD_MEMBERS},
    {f"{PROJECT}-like-controller": (CONTROLLERS[0], ("python", "-c", LOAD_A_CONTROLLER))},
)
# By number. No more than this run at once, because each strikes a broker of its own.
SECONDS = tuple(f"{PROJECT}-second-{number}" for number in range(len(BROKERS)))
_NETWORK_PROGRAMS = ("nsenter", "iptables", "iptables-restore")


def _why_no_networks() -> str:
    if os.geteuid() != 0:
        return "only root reaches into a container's network"
    missing = [name for name in _NETWORK_PROGRAMS if shutil.which(name) is None]
    return f"{', '.join(missing)} not found" if missing else ""


class Containers:
    """A `Cluster` of containers.

    `directory`: holds the disks for as long as the cluster exists.
    `compose_file`: used instead of docker-compose.yml; it has the same services, and their images
    exist already."""

    timings = Timings(LEASE_MS, LAG_TIME_MAX_MS)
    brokers: Sequence[str] = BROKERS
    controllers: Sequence[str] = CONTROLLERS
    etcd_members: Sequence[str] = ETCD_MEMBERS
    bootstrap: Sequence[str] = tuple(f"{broker}:{BROKER_PORT}" for broker in BROKERS)

    def __init__(self, directory: Path, compose_file: Path | None = None) -> None:
        self._has_own_images = compose_file is None
        self._compose_file = (compose_file or ROOT / "docker-compose.yml").absolute()
        self._directory = directory.absolute()
        self._stack = AsyncExitStack()
        self._abilities: set[Ability] = set()
        # The kinds that this machine cannot inject, with the reason.
        self.lacking: dict[Ability, str] = {}
        self._disks: dict[str, SmallDisk] = {}
        self._data_dirs: dict[str, Path] = {}
        self._clocks: dict[str, Path] = {}
        # The addresses of the load's clients, and of this harness, which no fault strikes.
        self._relays: dict[str, SharedRelay] = {}
        self._own_relays: dict[str, SharedRelay] = {}
        self._fault_numbers = count(1)
        self._second_number = -1
        self._ended_on_purpose: set[str] = set()
        self._program: list[str] = []
        self._ids: dict[str, str] = {}
        # The published ports must differ from those of another cluster on this machine.
        rng, taken = random.Random(), set[int]()
        self._environment = {
            **os.environ,
            "TIDELOG_TAG": TAG,
            **open_files(),
            "TIDELOG_REPLICA_LAG_TIME_MAX_MS": str(LAG_TIME_MAX_MS),
            **{
                f"TIDELOG_{service.upper().replace('-', '_')}_PORT": str(
                    choose_port(None, taken=taken, rng=rng)
                )
                for service in (*BROKERS, *CONTROLLERS, "gateway")
            },
        }

    @property
    def abilities(self) -> frozenset[Ability]:
        """Known after `prepare`."""
        return frozenset(self._abilities)

    @property
    def routes(self) -> Mapping[str, str]:
        return {_address(name): relay.address for name, relay in self._relays.items()} | {
            _address(name): self._own_relays[name].address for name in CONTROLLERS
        }

    @property
    def own_routes(self) -> Mapping[str, str]:
        return {_address(name): relay.address for name, relay in self._own_relays.items()}

    @property
    def services(self) -> Mapping[str, Identity]:
        return {
            _address(name): (role, int(name.rpartition("-")[2]))
            for role, names in ((BROKER, BROKERS), (CONTROLLER, CONTROLLERS))
            for name in names
        }

    @property
    def direct_routes(self) -> Mapping[str, str]:
        """The container addresses in the bridge network, which this machine reaches directly."""
        fixed = addresses(SERVICES)
        return {_address(name): f"{fixed[name]}:{_port(name)}" for name in (*BROKERS, *CONTROLLERS)}

    def data_dir(self, broker: str) -> Path:
        return self._data_dirs[broker]

    # -- the whole -------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Creates disks and images, and finds out which faults this machine can inject."""
        try:
            get_program = prepare if self._has_own_images else compose_command
            self._program = await asyncio.to_thread(get_program)
        except EngineError as error:
            raise ClusterFailedError(str(error)) from error
        self._abilities = {
            Ability.PROCESSES,
            Ability.CLIENT_RELAY,
            Ability.ETCD,
            Ability.ETCD_MEMBERS,
            Ability.DATA,
            Ability.SECOND,
        }
        self._found({Ability.NETWORK, Ability.SERVICE_RELAY}, _why_no_networks())
        await self._make_data_dirs()
        if not self._has_own_images:
            self.lacking[Ability.CLOCK] = "the images are those of another file"
            return
        await self._compose("build", *CONTROLLERS[:1], *BROKERS[:1])
        try:
            await self._build_faketime()
        except ClusterFailedError as error:
            self._found({Ability.CLOCK}, str(error))
        else:
            self._found({Ability.CLOCK}, "")

    def _found(self, abilities: Iterable[Ability], why_not: str) -> None:
        if why_not:
            self.lacking |= dict.fromkeys(abilities, why_not)
        else:
            self._abilities |= set(abilities)

    async def _make_data_dirs(self) -> None:
        """On disks that can be filled, or else on this machine's."""
        why_not = await why_no_small_disks(self._directory / "probe")
        self._found({Ability.FULL_DISK}, why_not)
        for broker in BROKERS:
            place = self._directory / "disks" / broker
            if why_not:
                self._data_dirs[broker] = place / "data"
                await asyncio.to_thread(make_data_dir, self._data_dirs[broker])
                continue
            disk = self._disks[broker] = SmallDisk(place)
            self._stack.push_async_callback(disk.remove)
            await disk.make()
            self._data_dirs[broker] = disk.data_dir

    async def _build_faketime(self) -> None:
        """Clocks are the machine's where the package cannot be had."""
        command = ["docker", "build", "--tag", f"tidelog-broker:{FAKETIME_TAG}"]
        command += ["--build-arg", f"BROKER_IMAGE=tidelog-broker:{TAG}", "-"]
        await run_command(command, stdin=FAKETIME_DOCKERFILE, timeout_s=UP_TIMEOUT_S)
        for broker in BROKERS:
            directory = self._clocks[broker] = self._directory / "clocks" / broker
            directory.mkdir(parents=True)
            (directory / "offset").write_text(clock_setting(0))

    async def start(self) -> None:
        (self._directory / "override.json").write_text(
            override(
                self._data_dirs,
                SERVICES,
                self._clocks if Ability.CLOCK in self._abilities else None,
                f"tidelog-broker:{FAKETIME_TAG}",
                user="" if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}",
            )
        )
        # What an earlier run may have left.
        await self._down()
        self._stack.push_async_callback(self._down)
        await self._compose("up", "--detach", "--no-build", *SERVICES)
        self._ids = {service: await self._find(service) for service in SERVICES}
        for name, (like, command) in chain.from_iterable(b.items() for b in BYSTANDERS):
            await self._create_bystander(name, like, command)
        for name in (*BROKERS, *CONTROLLERS):
            relays = [self._own_relays] if name in CONTROLLERS else [self._own_relays, self._relays]
            for by_name in relays:
                relay = by_name[name] = SharedRelay(await self._target(name))
                await relay.start()
                self._stack.push_async_callback(relay.stop)

    async def _create_bystander(self, name: str, like: str, command: Sequence[str]) -> None:
        found = await self._inspect(like)
        program, *arguments = command
        await run_command(
            [
                *("docker", "create", "--name", name, "--entrypoint", program),
                f"--cpus={found['HostConfig']['NanoCpus'] / 1e9:g}",
                *(found["Config"]["Image"], *arguments),
            ]
        )

    async def stop(self) -> None:
        await self._stack.aclose()

    async def _down(self) -> None:
        for names in (*BYSTANDERS, SECONDS):
            await remove(list(names))
        with suppress(ClusterFailedError):
            await self._compose("down", "--volumes", "--timeout", "5")

    async def _compose(self, *arguments: str) -> None:
        files = ["--file", str(self._compose_file)]
        changes = self._directory / "override.json"
        if changes.exists():
            files += ["--file", str(changes)]
        place = ["--project-name", PROJECT, "--project-directory", str(ROOT)]
        await run_command(
            [*self._program, *place, *files, *arguments],
            timeout_s=UP_TIMEOUT_S,
            environment=self._environment,
        )

    async def _find(self, service: str) -> str:
        """The id of the service's container, which stays the same when the container restarts."""
        labels = {"project": PROJECT, "service": service, "oneoff": "False"}
        filters = [f"--filter=label=com.docker.compose.{k}={v}" for k, v in labels.items()]
        found = (await run_command(["docker", "ps", "--all", "--quiet", *filters])).split()
        if len(found) != 1:
            raise ClusterFailedError(f"{service} has {len(found)} containers, and should have one")
        return found[0]

    # -- processes -------------------------------------------------------------------------

    async def kill(self, service: str) -> None:
        self._ended_on_purpose.add(service)
        await run_command(["docker", "kill", self._ids[service]])
        await self._wait_for_end(service)

    async def terminate(self, service: str) -> bool:
        self._ended_on_purpose.add(service)
        await run_command(["docker", "stop", "--time", str(STOP_TIMEOUT_S), self._ids[service]])
        # If it had to be killed after all, the status is that of SIGKILL.
        return bool((await self._inspect(service))["State"]["ExitCode"] == 0)

    async def _wait_for_end(self, service: str) -> None:
        await run_command(["docker", "wait", self._ids[service]])

    async def start_again(self, service: str) -> None:
        await run_command(["docker", "start", self._ids[service]])
        self._ended_on_purpose.discard(service)
        # Its address may have changed.
        for relays in (self._relays, self._own_relays):
            if service in relays:
                relays[service].aim(await self._target(service))

    async def stir(self) -> None:
        for names in BYSTANDERS * STIRS:
            for what in ("start", "kill"):
                await asyncio.gather(*(run_command(["docker", what, name]) for name in names))
                await asyncio.sleep(STIR_S)

    async def pause(self, service: str) -> None:
        await self._signal(service, "STOP")

    async def resume(self, service: str) -> None:
        await self._signal(service, "CONT")

    async def _signal(self, service: str, signal: str) -> None:
        await run_command(["docker", "kill", "--signal", signal, self._ids[service]])

    async def incarnation(self, service: str) -> str:
        state = (await self._inspect(service))["State"]
        return f"{state['Pid']} since {state['StartedAt']}" if state["Running"] else ""

    async def is_stopped(self, service: str) -> bool:
        return state_of(await self._pid(service)) == "T"

    def log_since_now(self, service: str) -> LogSince:
        return _LogSince(self._ids[service])

    async def log_lines(self, service: str) -> Iterable[bytes]:
        return await read_log(self._ids[service])

    async def ended_by_themselves(self) -> list[str]:
        ended = []
        for service in SERVICES:
            state = (await self._inspect(service))["State"]
            if state["Status"] in ENDED and service not in self._ended_on_purpose:
                ended.append(f"{service} (exit status {state['ExitCode']})")
        return ended

    async def start_second(self, broker: str, *, is_copy: bool) -> SecondProcess:
        number = self._second_number = (self._second_number + 1) % len(SECONDS)
        directory = self._directory / "seconds" / f"{next(self._fault_numbers)}"
        second = ContainerSecond(SECONDS[number], number, directory)
        try:
            copied = self._data_dirs[broker] if is_copy else None
            await second.start(await self._inspect(broker), copied)
        except BaseException:
            await second.stop()
            raise
        return second

    async def _inspect(self, service: str) -> dict[str, Any]:
        [found] = json.loads(await run_command(["docker", "inspect", self._ids[service]]))
        assert isinstance(found, dict)
        return found

    async def _pid(self, service: str) -> int:
        return int((await self._inspect(service))["State"]["Pid"])

    async def _ip(self, service: str) -> str:
        networks = (await self._inspect(service))["NetworkSettings"]["Networks"]
        [network] = networks.values()
        return str(network["IPAddress"])

    async def _target(self, service: str) -> str:
        return f"{await self._ip(service)}:{_port(service)}"

    # -- relays and network ----------------------------------------------------------------

    async def relay_clients(self, brokers: Sequence[str], manner: Manner) -> Traffic:
        traffic = RelayedTraffic([self._relays[broker] for broker in brokers], manner)
        await traffic.begin()
        return traffic

    async def relay_services(self, broker: str, manner: Manner) -> Traffic:
        name = self._fault_name()
        relay = ServiceRelay(name, lambda: self._pid(broker), BROKER_PORT, manner)
        await relay.begin()
        return relay

    async def cut(self, service: str, others: Sequence[str], *, only_in: bool = False) -> Cut:
        name = self._fault_name()
        # A container that is down has no address, and is cut off already.
        found = [address for other in others if (address := await self._ip(other))]
        if others and not found:
            raise ClusterFailedError(f"all that {service} is to be cut off from are down")
        return await self._rules(name, service, packet_rules.cut(name, found, only_in=only_in))

    async def drop(self, service: str, percent: int) -> Cut:
        name = self._fault_name()
        return await self._rules(name, service, packet_rules.drop(name, percent))

    async def _rules(self, name: str, service: str, begin: str) -> Rules:
        rules = Rules(name, lambda: self._pid(service), begin, packet_rules.remove(name))
        await rules.begin()
        return rules

    def _fault_name(self) -> str:
        return f"FAULT-{next(self._fault_numbers)}"

    # -- disks, etcd, clocks ---------------------------------------------------------------

    async def fill_disk(self, broker: str) -> None:
        await asyncio.to_thread(self._disks[broker].fill)

    async def free_disk(self, broker: str) -> None:
        await asyncio.to_thread(self._disks[broker].free)

    async def etcd_answers(self, member: str) -> bool:
        command = ["docker", "exec", self._ids[member], "etcdctl", "endpoint", "health"]
        try:
            await run_command([*command, f"--command-timeout={ETCD_TIMEOUT_S}s"])
        except ClusterFailedError:
            return False
        return True

    async def etcd_leader(self) -> str:
        for member in ETCD_MEMBERS:
            command = ["docker", "exec", self._ids[member], "etcdctl", "endpoint", "status"]
            try:
                [status] = json.loads(await run_command([*command, "--write-out", "json"]))
            except ClusterFailedError:  # this member is down
                continue
            found = status["Status"]
            if found.get("leader") and found["leader"] == found["header"]["member_id"]:
                return member
        raise ClusterFailedError("no etcd member reports that it leads")

    async def kill_all_etcd(self) -> int:
        running = [member for member in ETCD_MEMBERS if await self.incarnation(member)]
        await asyncio.gather(*(self.kill(member) for member in running))
        return len(running)

    async def start_all_etcd(self) -> None:
        await asyncio.gather(*(self.start_again(member) for member in ETCD_MEMBERS))

    async def set_clock(self, broker: str, ahead_s: int) -> None:
        setting = self._clocks[broker] / "offset"
        await asyncio.to_thread(setting.write_text, clock_setting(ahead_s))


class _LogSince:
    """The log of a service from the creation of this object."""

    def __init__(self, container: str) -> None:
        self._container = container
        self._since = asyncio.get_running_loop().time()

    async def logged_ms(self, kind: str, topic: str = "") -> list[int]:
        ago_s = asyncio.get_running_loop().time() - self._since
        lines = await read_log(self._container, "--since", f"{ago_s:.3f}s")
        return logged_ms(lines, kind, topic)


def _port(service: str) -> int:
    return BROKER_PORT if service in BROKERS else CONTROLLER_PORT


def _address(service: str) -> str:
    """The advertised address."""
    return f"{service}:{_port(service)}"
