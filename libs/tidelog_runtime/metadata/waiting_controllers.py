"""Controllers that wait because another process is registered under their id.

`controllers/waiting/<id>` is under a lease of the waiting process. It ends with the wait or
with the process.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from tidelog.inspection.controller_reports import WaitingController
from tidelog_runtime.metadata.broker_directories import known_fields
from tidelog_runtime.metadata.entries_by_id import EntriesById


def encode_waiting_controller(waiting: WaitingController) -> bytes:
    return json.dumps(asdict(waiting), separators=(",", ":")).encode()


def decode_waiting_controller(value: bytes) -> WaitingController:
    """Raises TypeError or ValueError for a value that no controller writes."""
    raw = json.loads(value)
    if not isinstance(raw, dict):
        raise ValueError("a waiting controller is a JSON object")
    return WaitingController(**known_fields(WaitingController, raw))


class WaitingControllers(EntriesById[WaitingController]):
    """The waiting controllers, kept up to date by changes of the keys under `prefix`."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix, decode_waiting_controller)

    def described(self) -> tuple[WaitingController, ...]:
        """Returns the waiting controllers, ordered by id."""
        return tuple(waiting for _, waiting in sorted(self._entries.items()))
