"""Resources that processes are short of, as services and gateways report them. Pure.

`inspect.proto` documents the fields."""

from __future__ import annotations

from dataclasses import dataclass

# An active controller that could open no file for so long hands over to a standby that can. Longer
# than a burst of connections lasts.
HAND_OVER_AFTER_MS = 10_000


@dataclass(frozen=True, slots=True)
class ResourcePressure:
    """Of the process that reports it."""

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
