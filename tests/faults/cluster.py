"""What a run asks of the cluster that it strikes: containers, or processes of this machine.

Services go by name: broker-1, controller-2, etcd-3. What a cluster has no `Ability` for is never
asked of it.
"""

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
# What a controller does until it serves, in Python.
LOAD_A_CONTROLLER = "import tidelog_controller.__main__, time; time.sleep(60)"


class ClusterFailedError(Exception):
    """The cluster, or what it runs on, did not do what a fault or its end needs."""


class LogSince(Protocol):
    """What a service has said since it was asked for."""

    async def told_ms(self, kind: str, topic: str = "") -> list[int]:
        """When it told state changes of a kind, of this topic alone or of all, by its wall
        clock."""


class Cut(Protocol):
    """Rules in force in the network of services."""

    async def packets(self) -> Packets: ...

    async def heal(self) -> None: ...


class Traffic(Protocol):
    """Relays in force in front of a broker, or of all."""

    async def counts(self) -> Counts: ...

    async def heal(self) -> None: ...


class SecondProcess(Protocol):
    """A process that runs under the id of a broker, beside that broker's own."""

    @property
    def place(self) -> str:
        """Its address or data directory as findings print it; no other process has the same."""

    async def exit_status(self) -> int | None:
        """None: it runs."""

    async def log_lines(self) -> list[bytes]: ...

    async def stop(self) -> None:
        """SIGTERM; returns once it has ended and its data directory is removed."""


class Processes(Protocol):
    async def start(self) -> None:
        """Returns once all of it serves."""

    async def stop(self) -> None: ...

    async def kill(self, service: str) -> None:
        """SIGKILL; returns once it has ended."""

    async def terminate(self, service: str) -> bool:
        """SIGTERM; returns once it has ended: whether by that, and with exit status 0."""

    async def start_again(self, service: str) -> None: ...

    async def stir(self) -> None:
        """Starts and ends processes like these that belong to no cluster: what that does to the
        machine, in which faults do the same, is no fault's doing."""

    async def pause(self, service: str) -> None: ...

    async def resume(self, service: str) -> None: ...

    async def life(self, service: str) -> str:
        """Names its present process; another process has another. Empty: none runs."""

    async def is_stopped(self, service: str) -> bool:
        """Whether the kernel has it stopped, as `pause` does."""

    def log_since_now(self, service: str) -> LogSince: ...

    async def start_second(self, broker: str, *, is_copy: bool) -> SecondProcess:
        """With an address of its own, and a data directory that is empty, or a copy of that of
        this broker as it is now."""

    async def log_lines(self, service: str) -> Iterable[bytes]:
        """All that it has said."""

    async def ended_by_themselves(self) -> list[str]:
        """Services that ended though nobody asked them to."""


class Cluster(Processes, Protocol):
    """`routes`: where the load's clients connect instead of each advertised address, so that
    relays stand between. `own_routes`: where this harness does, which nothing strikes."""

    @property
    def abilities(self) -> frozenset[Ability]: ...

    @property
    def timings(self) -> Timings: ...

    @property
    def bootstrap(self) -> Sequence[str]:
        """Advertised addresses of brokers."""

    @property
    def routes(self) -> Mapping[str, str]: ...

    @property
    def own_routes(self) -> Mapping[str, str]: ...

    @property
    def services(self) -> Mapping[str, Identity]:
        """Role and id of each broker and controller, by its advertised address."""

    @property
    def direct_routes(self) -> Mapping[str, str]:
        """Where this harness reaches a service itself, with no relay between that would take a
        connection for one that is down, instead of its advertised address."""

    @property
    def brokers(self) -> Sequence[str]: ...

    @property
    def controllers(self) -> Sequence[str]: ...

    @property
    def etcd_members(self) -> Sequence[str]: ...

    def data_dir(self, broker: str) -> Path:
        """As this process can read and, while the broker is down, write it."""

    # -- relays ----------------------------------------------------------------------------

    async def relay_clients(self, brokers: Sequence[str], manner: Manner) -> Traffic: ...

    async def relay_services(self, broker: str, manner: Manner) -> Traffic:
        """All that reaches a broker: clients, other brokers, controllers."""

    # -- network ---------------------------------------------------------------------------

    async def cut(self, service: str, others: Sequence[str], *, only_in: bool = False) -> Cut:
        """No packet passes between them; `only_in`: none of theirs reaches the service. No
        `others`: nothing at all passes, clients included."""

    async def drop(self, service: str, percent: int) -> Cut:
        """Of the packets that reach it and leave it."""

    # -- disks, etcd, clocks ---------------------------------------------------------------

    async def fill_disk(self, broker: str) -> None: ...

    async def free_disk(self, broker: str) -> None: ...

    async def etcd_answers(self, member: str) -> bool:
        """Whether it serves what its quorum agrees on, as one that is healthy does."""

    async def etcd_leader(self) -> str: ...

    async def kill_all_etcd(self) -> int:
        """How many members ended."""

    async def start_all_etcd(self) -> None: ...

    async def set_clock(self, broker: str, ahead_s: int) -> None: ...
