"""The shortages of brokers and controllers, as the metadata store holds them. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.inspection.resource_pressures import ControllerPressure
from tidelog_runtime.metadata.entries_by_id import EntriesById


class Pressure(NamedTuple):
    """A shortage of one resource.

    The unit of `used` and `limit` depends on the resource:

    - files, connections or bytes;
    - CPU: milliseconds of waiting, of the milliseconds that passed;
    - disk: milliseconds that an operation takes, and those of a slow one;
    - network: TCP segments that its connections sent again, of those that they sent;
    - scrub: milliseconds that its pass takes, and its period. Only the broker itself reports it.

    `detail`: what uses the resource, for people; for the disk, the operation; for the network,
    "12 to ADDRESS, 3 to ADDRESS": the peers. It may be empty.
    """

    resource: str
    used: int
    limit: int
    since_ms: int
    detail: str = ""


def encode_pressures(pressures: Sequence[Pressure]) -> bytes:
    """Returns the value of `brokers/pressures/<id>` or `controllers/pressures/<id>`."""
    return json.dumps([p._asdict() for p in pressures], separators=(",", ":")).encode()


def decode_pressures(value: bytes) -> tuple[Pressure, ...]:
    """Raises KeyError, TypeError or ValueError for a value that no service writes."""
    return tuple(
        Pressure(
            str(raw["resource"]),
            int(raw["used"]),
            int(raw["limit"]),
            int(raw["since_ms"]),
            str(raw.get("detail", "")),
        )
        for raw in json.loads(value)
    )


class ControllerPressures(EntriesById[tuple[Pressure, ...]]):
    """Pressures by controller id, kept up to date by changes of `controllers/pressures/<id>`."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix, decode_pressures)

    def described(
        self, own_id: int | None = None, own: Sequence[Pressure] = ()
    ) -> tuple[ControllerPressure, ...]:
        """Returns the pressures of all controllers, ordered by id.

        - `own`: current pressures of the controller `own_id`, which replace those in the store.
        """
        known = dict(self._entries)
        if own_id is not None:
            known[own_id] = tuple(own)
        return tuple(
            ControllerPressure(controller_id, *pressure)
            for controller_id, pressures in sorted(known.items())
            for pressure in pressures
        )
