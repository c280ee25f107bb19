"""Shortages of resources, as services and gateways report them. No I/O.

`inspect.proto` documents the fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# An active controller that could open no file for this time hands its role to a standby that can.
# It is longer than a burst of connections.
HAND_OVER_AFTER_MS = 10_000


@dataclass(frozen=True, slots=True)
class ResourcePressure:
    """A shortage of the process that reports it."""

    resource: str
    used: int
    limit: int
    since_ms: int
    detail: str = ""


# The ids are fields of second base classes, so that they come before those of the pressure.
@dataclass(frozen=True)
class _OfBroker:
    broker_id: int


@dataclass(frozen=True)
class _OfController:
    controller_id: int


@dataclass(frozen=True)
class BrokerPressure(ResourcePressure, _OfBroker):
    """A shortage of this broker, whichever process reports it."""


@dataclass(frozen=True)
class ControllerPressure(ResourcePressure, _OfController):
    """A shortage of this controller, whichever process reports it."""


FILES, MEMORY, CPU, CONNECTIONS = "open_files", "memory", "cpu", "connections"
DISK, SCRUB, NETWORK = "disk", "scrub", "network"
# With so few files left, neither a connection nor a segment can be opened reliably.
FEW_FILES_LEFT = 16
FEW_FILES_LEFT_PERCENT = 3


def has_no_files_left(pressure: ResourcePressure | None) -> bool:
    if pressure is None or pressure.resource != FILES:
        return False
    left = pressure.limit - pressure.used
    return left <= max(FEW_FILES_LEFT, pressure.limit * FEW_FILES_LEFT_PERCENT // 100)


def silencing(pressures: Mapping[str, ResourcePressure]) -> str:
    """Returns the resource whose shortage keeps a process from answering in time, or ""."""
    if has_no_files_left(pressures.get(FILES)):
        return FILES
    return next((resource for resource in (CONNECTIONS, CPU) if resource in pressures), "")
