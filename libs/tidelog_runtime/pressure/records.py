"""What a broker or a controller is short of, as the metadata store holds it. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple


class Pressure(NamedTuple):
    """`used` and `limit`: files, bytes, of the CPU milliseconds of waiting in as many that
    passed, of the disk the milliseconds that an operation takes and those of a slow one, or of
    the network the TCP segments that were sent again and those that were sent.
    `detail`: what uses it, for people, or of the disk that operation; may be empty."""

    resource: str
    used: int
    limit: int
    since_ms: int
    detail: str = ""


def encode_pressures(pressures: Sequence[Pressure]) -> bytes:
    """Value of `brokers/pressures/<id>` and `controllers/pressures/<id>`."""
    return json.dumps([p._asdict() for p in pressures], separators=(",", ":")).encode()


def decode_pressures(value: bytes) -> tuple[Pressure, ...]:
    """Raises KeyError, TypeError or ValueError for what no service has written."""
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
