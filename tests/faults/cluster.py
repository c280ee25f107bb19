"""The interface of a cluster that faults strike: containers, or processes of this machine.

Services have names: broker-1, controller-2, etcd-3. A method is called only if the cluster has its
`Ability`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from faults.catalogue import Ability, Timings
from faults.packet_rules import Packets
from faults.relay import Counts, Manner
from tidelog.client.service_round import Identity

# How often `stir` starts and ends processes, and how long they run.
STIRS = 3
STIR_S = 2.0
# The work of a controller until it serves, in Python.
LOAD_A_CONTROLLER = "import tidelog_controller.__main__, time; time.sleep(60)"


class ClusterFailedError(Exception):
    """The cluster, or the machine below it, did not do what injecting or healing a fault needs."""


class LogSince(Protocol):
    """The log of a service from now on."""

    async def logged_ms(self, kind: str, topic: str = "") -> list[int]:
        """The wall-clock times at which the service logged state changes of a kind, of one topic or
        of all."""


class Cut(Protocol):
    """Rules in force in the network of services."""

    async def packets(self) -> Packets: ...

    async def heal(self) -> None: ...


class Traffic(Protocol):
    """Relays in force before one broker or all brokers."""

    async def counts(self) -> Counts: ...

    async def heal(self) -> None: ...


class SecondProcess(Protocol):
    """A second process with the id of a broker, beside that broker's own."""

    @property
    def place(self) -> str:
        """Its address or data directory as findings print it; no other process has the same."""

    async def exit_status(self) -> int | None:
        """None: it runs."""

    async def log_lines(self) -> list[bytes]: ...

    async def stop(self) -> None:
        """Sends SIGTERM; returns once the process has ended and its data directory is removed."""


class Processes(Protocol):
    async def start(self) -> None:
        """Returns once every service serves."""

    async def stop(self) -> None: ...

    async def kill(self, service: str) -> None:
        """Sends SIGKILL; returns once the process has ended."""

    async def terminate(self, service: str) -> bool:
        """Sends SIGTERM; returns once the process has ended, and whether it did so by itself with
        exit status 0."""

    async def start_again(self, service: str) -> None: ...

    async def stir(self) -> None:
        """Starts and ends similar processes outside the cluster.

        Faults load the machine in the same way. A delay during this time is therefore not the
        effect of a fault."""

    async def pause(self, service: str) -> None: ...

    async def resume(self, service: str) -> None: ...

    async def incarnation(self, service: str) -> str:
        """Identifies the running process: a restarted one has another value. Empty: none runs."""

    async def is_stopped(self, service: str) -> bool:
        """Whether the kernel has stopped the process, as `pause` does."""

    def log_since_now(self, service: str) -> LogSince: ...

    async def start_second(self, broker: str, *, is_copy: bool) -> SecondProcess:
        """Starts a second process with its own address.

        Its data directory is empty, or a copy of this broker's current one."""

    async def log_lines(self, service: str) -> Iterable[bytes]:
        """Its complete log."""

    async def ended_by_themselves(self) -> list[str]:
        """The services that ended without a request of the harness."""


class Cluster(Processes, Protocol):
    """`routes`: where the load's clients connect instead of each advertised address, through
    relays.
    `own_routes`: where this harness connects, which no fault strikes."""

    @property
    def abilities(self) -> frozenset[Ability]: ...

    @property
    def timings(self) -> Timings: ...

    @property
    def bootstrap(self) -> Sequence[str]:
        """The advertised addresses of brokers."""

    @property
    def routes(self) -> Mapping[str, str]: ...

    @property
    def own_routes(self) -> Mapping[str, str]: ...

    @property
    def services(self) -> Mapping[str, Identity]:
        """The role and id of each broker and controller, by its advertised address."""

    @property
    def direct_routes(self) -> Mapping[str, str]:
        """Where this harness reaches a service instead of its advertised address.

        There is no relay between them, because a relay accepts connections of a service that is
        down."""

    @property
    def brokers(self) -> Sequence[str]: ...

    @property
    def controllers(self) -> Sequence[str]: ...

    @property
    def etcd_members(self) -> Sequence[str]: ...

    def data_dir(self, broker: str) -> Path:
        """The broker's data directory; this process can read it, and write it while the broker is
        down."""

    # -- relays ----------------------------------------------------------------------------

    async def relay_clients(self, brokers: Sequence[str], manner: Manner) -> Traffic: ...

    async def relay_services(self, broker: str, manner: Manner) -> Traffic:
        """Relays everything that reaches a broker: from clients, other brokers and controllers."""

    # -- network ---------------------------------------------------------------------------

    async def cut(self, service: str, others: Sequence[str], *, only_in: bool = False) -> Cut:
        """Drops every packet between the service and `others`.

        `only_in`: drops only packets to the service. No `others`: drops everything, clients
        included."""

    async def drop(self, service: str, percent: int) -> Cut:
        """Drops a share of the packets that reach the service or leave it."""

    # -- disks, etcd, clocks ---------------------------------------------------------------

    async def fill_disk(self, broker: str) -> None: ...

    async def free_disk(self, broker: str) -> None: ...

    async def etcd_answers(self, member: str) -> bool:
        """Whether the member answers linearizable requests, as a healthy one does."""

    async def etcd_leader(self) -> str: ...

    async def kill_all_etcd(self) -> int:
        """Returns how many members ended."""

    async def start_all_etcd(self) -> None: ...

    async def set_clock(self, broker: str, ahead_s: int) -> None: ...
