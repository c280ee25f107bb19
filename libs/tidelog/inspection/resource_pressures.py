"""Shortages of resources, as services and gateways report them. No I/O.

`inspect.proto` documents the fields."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class BrokerPressure:
    broker_id: int
    resource: str
    used: int
    limit: int
    since_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ControllerPressure:
    controller_id: int
    resource: str
    used: int
    limit: int
    since_ms: int
    detail: str = ""


Pressing = ResourcePressure | BrokerPressure | ControllerPressure
