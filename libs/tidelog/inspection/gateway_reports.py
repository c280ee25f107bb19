"""Gateways: their announcements, the reports of controllers about them, and their states. No I/O.

`controller.proto` and `inspect.proto` document the fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidelog.caller_limits import LimitedClient
from tidelog.inspection.resource_pressures import ResourcePressure

ANNOUNCE_INTERVAL_MS = 2_000
# Several announcements in a row may be late when a controller or the gateway is busy.
GATEWAY_SILENT_MS = 10_000
# Limit for a gateway that still answers HTTP. It may lose more announcements, for example while
# controllers restart.
GATEWAY_CUT_OFF_MS = 30_000
GATEWAY_FORGOTTEN_MS = 24 * 3_600_000
# Gateways that one controller remembers.
MAX_GATEWAYS = 100
# Clients in one announcement: those with the latest rejections.
MAX_LIMITED_CLIENTS = 10
MAX_PRESSURES = 10
GATEWAY_STATES = ALIVE, SILENT, STOPPED = "alive", "silent", "stopped"


@dataclass(frozen=True, slots=True)
class GatewayAnnouncement:
    """An announcement that a gateway sends to every controller."""

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
    """A gateway as a controller reports it."""

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
    """Any state with an optional controller part, such as `ServiceState`."""

    @property
    def controller(self) -> _HasGateways | None: ...


_LOOPBACK = ("127.", "localhost:", "[::1]:")


def is_loopback(address: str) -> bool:
    """Whether the address names a process of the caller's own machine.

    >>> is_loopback("127.0.0.1:7600"), is_loopback("localhost:7600"), is_loopback("gate-1:7600")
    (True, True, False)
    """
    return address.startswith(_LOOPBACK)


def state_of(gateway: AnnouncedGateway) -> str:
    if gateway.is_stopped:
        return STOPPED
    return SILENT if gateway.last_heard_ms >= GATEWAY_SILENT_MS else ALIVE


def known_gateways(states: Iterable[_MayHaveGateways]) -> list[AnnouncedGateway]:
    """Returns each gateway, ordered by address and host.

    The controller with the latest announcement describes a gateway. A gateway counts as stopped if
    any controller knows that this process stopped.
    """
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
