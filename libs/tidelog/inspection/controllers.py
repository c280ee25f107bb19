"""Controllers that are not registered, and run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WaitingController:
    """Waits because another process is registered under its id. `since_ms`: wall clock."""

    controller_id: int
    address: str
    host: str
    since_ms: int
    registered_address: str
    registered_host: str = ""
