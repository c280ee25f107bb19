"""Waiting controllers, ended leases, crashes, and connections to brokers, as controllers report
them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WaitingController:
    """A controller that waits because another process is registered under its id. `since_ms`: the
    wall clock."""

    controller_id: int
    address: str
    host: str
    since_ms: int
    registered_address: str
    registered_host: str = ""


@dataclass(frozen=True, slots=True)
class LeaseEnds:
    broker_id: int
    count: int
    window_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class ServiceCrashes:
    """Crashes of one service that follow each other. `since_ms`, `last_ms`: ages of the first and
    the last one. `reason`: of the last one, as the process reported it; empty: unknown."""

    role: str
    id: int
    address: str
    count: int
    since_ms: int
    last_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BrokerConnection:
    """The active controller's connection to a broker. `broken_ms` is -1 while it is connected."""

    broker_id: int
    broker_epoch: int
    broken_ms: int = -1
    dial: str = ""

    @property
    def is_connected(self) -> bool:
        return self.broken_ms < 0
