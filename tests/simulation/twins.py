"""A second process of one broker id, on a machine of its own.

Rules tell the replicas of the two apart by machine: a broker's own has the broker's id, and that
of its twin another number.
"""

from __future__ import annotations

_TWIN = "twin-"
_FIRST_TWIN = 1_000


def twin_host(broker_id: int) -> str:
    return f"{_TWIN}{broker_id}"


def machine_at(broker_id: int, address: str) -> int:
    """The machine on which a process of this broker listens at this address."""
    return _FIRST_TWIN + broker_id if address.startswith(_TWIN) else broker_id
