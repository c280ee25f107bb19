"""Gateways: what they announce, what controllers report of them, and how they stand. Pure.

`controller.proto` and `inspect.proto` document the fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidelog.caller_limits import LimitedClient
from tidelog.inspection.pressures import ResourcePressure

ANNOUNCE_INTERVAL_MS = 2_000
# Several announcements in a row may be late: a controller, or the gateway, may be busy.
GATEWAY_SILENT_MS = 10_000
# One that answers its clients meanwhile: more of them may be lost, as while controllers restart.
GATEWAY_CUT_OFF_MS = 30_000
GATEWAY_FORGOTTEN_MS = 24 * 3_600_000
# Kept by one controller.
MAX_GATEWAYS = 100
# Of one announcement: those that were rejected last.
MAX_LIMITED_CLIENTS = 10
MAX_PRESSURES = 10
GATEWAY_STATES = ALIVE, SILENT, STOPPED = "alive", "silent", "stopped"


@dataclass(frozen=True, slots=True)
class GatewayAnnouncement:
    """Sent by a gateway to every controller."""

    address: str
    host: str
    pid: int
    started_at_ms: int
    version: str
    is_stopping: bool = False
    limited_clients: Sequence[LimitedClient] = ()
    pressures: Sequence[ResourcePressure] = ()


@dataclass(frozen=True, slots=True)
class AnnouncedGateway:
    """As a controller reports it."""

    address: str
    host: str
    pid: int
    version: str
    started_at_ms: int
    last_heard_ms: int
    is_stopped: bool = False
    limited_clients: Sequence[LimitedClient] = ()
    pressures: Sequence[ResourcePressure] = ()


class _HasGateways(Protocol):
    @property
    def gateways(self) -> Sequence[AnnouncedGateway]: ...


class _MayHaveGateways(Protocol):
    """As `ServiceState`."""

    @property
    def controller(self) -> _HasGateways | None: ...


_LOOPBACK = ("127.", "localhost:", "[::1]:")


def is_loopback(address: str) -> bool:
    """Whether it names a process of the caller's own machine.

    >>> is_loopback("127.0.0.1:7600"), is_loopback("localhost:7600"), is_loopback("gate-1:7600")
    (True, True, False)
    """
    return address.startswith(_LOOPBACK)


def state_of(gateway: AnnouncedGateway) -> str:
    if gateway.is_stopped:
        return STOPPED
    return SILENT if gateway.last_heard_ms >= GATEWAY_SILENT_MS else ALIVE


def known_gateways(states: Iterable[_MayHaveGateways]) -> list[AnnouncedGateway]:
    """Each gateway as the controller knows it that heard it last, ordered by address and host. That
    a process has stopped one of them may know alone."""
    found: dict[tuple[str, str], AnnouncedGateway] = {}
    stopped: set[tuple[str, str, int, int]] = set()
    for state in states:
        for gateway in state.controller.gateways if state.controller is not None else ():
            key = (gateway.address, gateway.host)
            if gateway.is_stopped:
                stopped.add((*key, gateway.pid, gateway.started_at_ms))
            if key not in found or gateway.last_heard_ms < found[key].last_heard_ms:
                found[key] = gateway
    return [
        replace(g, is_stopped=(g.address, g.host, g.pid, g.started_at_ms) in stopped)
        for _, g in sorted(found.items())
    ]
