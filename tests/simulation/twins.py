"""A second process of one broker id, on a machine of its own.

Rules identify replicas of the two by machine: a broker's own machine has the broker's id, and
that of its twin another number.
"""

from __future__ import annotations

_TWIN = "twin-"
_FIRST_TWIN = 1_000


def twin_host(broker_id: int) -> str:
    return f"{_TWIN}{broker_id}"


def machine_at(broker_id: int, address: str) -> int:
    """Returns the machine on which a process of this broker listens at this address."""
    return _FIRST_TWIN + broker_id if address.startswith(_TWIN) else broker_id
