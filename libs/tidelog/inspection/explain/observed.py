"""What a round of questions to a cluster's services brought: the input of `explain`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.inspection.gateways import AnnouncedGateway
from tidelog.inspection.model import (
    NOT_KNOWN,
    PartitionKeyState,
    Scope,
    ServiceState,
)

BROKER = "broker"
CONTROLLER = "controller"


class Listening(enum.Enum):
    """What a plain TCP connect, and where that is taken a health check, say of a service that
    gave no answer."""

    BUSY = "answers health checks"  # it lives, and has not told in time how it stands
    ACCEPTS = "takes connections"  # a process that stands still: the kernel takes them for it
    REFUSES = "refuses connections"
    SILENT = "does not react to connections"
    UNRESOLVED = "has a name that does not resolve"
    ERRS = "answers with an error"


@dataclass(frozen=True, slots=True)
class SilentService:
    """`role` and `id` as others tell of that address; "" and NOT_KNOWN: nobody does.
    `problem`: what the question ended with."""

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
    """One that no controller has heard lately. `listening`: how its address was found, BUSY where
    it answers HTTP; None: it cannot be asked from here."""

    gateway: AnnouncedGateway
    listening: Listening | None


class ReadClock(NamedTuple):
    """The wall clock of a service: by how much it is ahead of that of the process that asked, at
    the least and at the most, as nobody knows when between question and answer it was read.
    `is_own`: the service itself asks."""

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


_WHOLE_CLUSTER = Scope()


@dataclass(frozen=True, slots=True)
class Observed:
    """`metadata`: partitions beside those that the active controller tells unasked: those in
    whose ISRs silent brokers are, or, where no controller tells, as a broker has read them in
    the store. `earlier`: some services once more, as they were `earlier_ms` before `states`.
    `glimpses`: of some of `silent`, which are busy, who they know and how the store answers
    them, without replicas and partitions. `clocks`: of the services that answered."""

    states: Sequence[ServiceState]
    silent: Sequence[SilentService] = ()
    scope: Scope = _WHOLE_CLUSTER
    metadata: Sequence[PartitionKeyState] = ()
    earlier: Sequence[ServiceState] = ()
    earlier_ms: int = 0
    glimpses: Sequence[ServiceState] = ()
    silent_gateways: Sequence[SilentGateway] = ()
    clocks: Sequence[ReadClock] = ()

    @property
    def tellers(self) -> Sequence[ServiceState]:
        """All who told anything."""
        return (*self.states, *self.glimpses)


def name_of(state: ServiceState) -> str:
    """As in events: "broker-2"."""
    return f"{state.role}-{state.id}"
