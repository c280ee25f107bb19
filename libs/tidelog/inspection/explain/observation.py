"""The result of one round of requests to a cluster's services: the input of `explain`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.inspection.gateway_reports import AnnouncedGateway
from tidelog.inspection.state_reports import (
    NOT_KNOWN,
    PartitionKeyState,
    Scope,
    ServiceState,
)

BROKER = "broker"
CONTROLLER = "controller"


class Listening(enum.Enum):
    """How a service that gave no answer reacts to a plain TCP connection, and to a health check if
    that is accepted."""

    BUSY = "answers health checks"  # it is alive, and has not described its state in time
    ACCEPTS = "takes connections"  # the process is paused; the kernel accepts them for it
    REFUSES = "refuses connections"
    SILENT = "does not react to connections"
    UNRESOLVED = "has a name that does not resolve"
    ERRS = "answers with an error"
    # Another program listens there.
    SPEAKS_HTTP = "speaks HTTP/1.1, not gRPC"
    SPEAKS_TLS = "speaks TLS, not plain gRPC"
    SPEAKS_OTHER = "does not speak gRPC"

    @property
    def takes_connections(self) -> bool:
        """Whether a process listens that gave no useful answer."""
        return self in _TAKE_CONNECTIONS


_TAKE_CONNECTIONS = (
    Listening.ACCEPTS,
    Listening.ERRS,
    Listening.SPEAKS_HTTP,
    Listening.SPEAKS_TLS,
    Listening.SPEAKS_OTHER,
)


@dataclass(frozen=True, slots=True)
class SilentService:
    """A service that did not answer.

    - `role`, `id`: as other services report them for the address; "" and NOT_KNOWN if none does.
    - `problem`: how the request ended.
    """

    address: str
    listening: Listening
    problem: str
    role: str = ""
    id: int = NOT_KNOWN

    def __str__(self) -> str:
        who = f"{self.role}-{self.id}" if self.role and self.id != NOT_KNOWN else self.role
        return f"{who} at {self.address}" if who else self.address


@dataclass(frozen=True, slots=True)
class SilentGateway:
    """A gateway whose announcements have ceased. `listening`: the result of probing its
    address, BUSY if it answers HTTP; None if it cannot be probed from here."""

    gateway: AnnouncedGateway
    listening: Listening | None


class ReadClock(NamedTuple):
    """The wall clock of a service, relative to that of the calling process.

    - `least_ahead_ms`, `most_ahead_ms`: bounds of the difference. It is unknown when the clock was
      read between request and answer.
    - `is_own`: the service is the calling process.
    """

    role: str
    id: int
    least_ahead_ms: int
    most_ahead_ms: int
    is_own: bool = False

    @property
    def ahead_ms(self) -> int:
        return (self.least_ahead_ms + self.most_ahead_ms) // 2

    def __str__(self) -> str:
        return f"{self.role}-{self.id}"


class TopicFactor(NamedTuple):
    name: str
    replication_factor: int


class TopicFactors(NamedTuple):
    """Topics as a broker reports them. `brokers`: how many brokers run."""

    topics: Sequence[TopicFactor]
    brokers: int


_WHOLE_CLUSTER = Scope()


@dataclass(frozen=True, slots=True)
class Observation:
    """The answers of all services.

    - `metadata`: partitions beside those that the active controller reports by default: those with
      silent brokers in their ISRs, or, without a controller, those that a broker has read in the
      store.
    - `earlier`: previous states of some services, `earlier_ms` before `states`.
    - `short_states`: states of some busy services of `silent`, with other services and the state of
      the store, without replicas and partitions.
    - `clocks`: clocks of the services that answered.
    - `topics`: the replication factors of the topics in the scope; None: no broker reported them.
    """

    states: Sequence[ServiceState]
    silent: Sequence[SilentService] = ()
    scope: Scope = _WHOLE_CLUSTER
    metadata: Sequence[PartitionKeyState] = ()
    earlier: Sequence[ServiceState] = ()
    earlier_ms: int = 0
    short_states: Sequence[ServiceState] = ()
    silent_gateways: Sequence[SilentGateway] = ()
    clocks: Sequence[ReadClock] = ()
    topics: TopicFactors | None = None

    @property
    def reporters(self) -> Sequence[ServiceState]:
        """All services that reported anything."""
        return (*self.states, *self.short_states)


def name_of(state: ServiceState) -> str:
    """Returns a name as events have it: "broker-2"."""
    return f"{state.role}-{state.id}"
