"""Controllers that run without a registration."""

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
