"""Controllers that wait because another process is registered under their id.

`controllers/waiting/<id>` is under a lease of the process that waits: it ends with the wait, or
with the process."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict

from tidelog.inspection.controllers import WaitingController
from tidelog_runtime.metadata.broker_directories import known_fields
from tidelog_runtime.metadata.store import KeyValue


def encode_waiting_controller(waiting: WaitingController) -> bytes:
    return json.dumps(asdict(waiting), separators=(",", ":")).encode()


def decode_waiting_controller(value: bytes) -> WaitingController:
    """Raises TypeError or ValueError for what no controller has written."""
    raw = json.loads(value)
    if not isinstance(raw, dict):
        raise ValueError("a waiting controller is a JSON object")
    return WaitingController(**known_fields(WaitingController, raw))


class WaitingControllers:
    """As changes of the keys under `prefix` report them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._waiting: dict[int, WaitingController] = {}

    def clear(self) -> None:
        self._waiting.clear()

    def take(self, key: str, item: KeyValue | None) -> None:
        """Ignores other keys, and what no controller has written."""
        number = key.removeprefix(self._prefix)
        if number == key or not number.isdecimal():
            return
        self._waiting.pop(int(number), None)
        if item is not None:
            with suppress(ValueError, TypeError):
                self._waiting[int(number)] = decode_waiting_controller(item.value)

    def described(self) -> tuple[WaitingController, ...]:
        """Ordered by id."""
        return tuple(waiting for _, waiting in sorted(self._waiting.items()))
