"""The addresses on which the parts of a local cluster listen."""

from __future__ import annotations

import random

from tidelog_runtime.local.cluster_file import ClusterFile
from tidelog_runtime.local.ports import HOST, choose_port

GATEWAY = "admin-api"


def part_name(shown: str) -> str:
    """Returns the name of a part that may be written as in the table of parts.

    >>> part_name("broker 2"), part_name("gateway"), part_name("controller-1")
    ('broker-2', 'admin-api', 'controller-1')
    """
    return GATEWAY if shown == "gateway" else shown.replace(" ", "-")


class Addresses:
    """Chooses an address for each part.

    - `previous`: a part keeps its address in this file if the port is free.
    - `usual_ports`: other parts get the well-known ports if these are free.
    """

    def __init__(
        self, previous: ClusterFile | None, *, usual_ports: bool, rng: random.Random
    ) -> None:
        self._known = _addresses_of(previous)
        self._usual_ports = usual_ports
        self._rng = rng
        # By part, the preferred port that is occupied, and the port that was chosen instead.
        self.replaced: dict[str, tuple[int, int]] = {}
        # Ports of parts that listen or will listen; none is assigned twice.
        self._taken: set[int] = set()

    def choose(self, part: str, usual_port: int) -> str:
        preferred = usual_port if self._usual_ports else None
        if self._known.get(part):
            preferred = int(self._known[part].rpartition(":")[2])
        port = choose_port(preferred, taken=self._taken, rng=self._rng)
        if preferred is not None and port != preferred:
            self.replaced[part] = preferred, port
        return f"{HOST}:{port}"

    def choose_metrics(self, part: str, usual_port: int) -> str:
        """Chooses the address of the part's metrics."""
        return self.choose(_metrics_of(part), usual_port)


def _addresses_of(previous: ClusterFile | None) -> dict[str, str]:
    known: dict[str, str] = {}
    if previous is None:
        return known
    parts = [(f"controller-{c.id}", c.address, c.metrics) for c in previous.controllers]
    parts += [(f"broker-{b.id}", b.address, b.metrics) for b in previous.brokers]
    for name, address, metrics in parts:
        known |= {name: address, _metrics_of(name): metrics}
    if previous.gateway is not None:
        known[GATEWAY] = previous.gateway.address
    return known


def _metrics_of(part: str) -> str:
    return f"{part} metrics"
