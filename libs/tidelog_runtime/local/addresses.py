"""The addresses on which the parts of a local cluster listen."""

from __future__ import annotations

import random
import socket

from tidelog_runtime.local import ClusterError
from tidelog_runtime.local.cluster_file import ClusterFile

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


HOST = "127.0.0.1"
CONTROLLER_BASE_PORT = 7400
BROKER_BASE_PORT = 7500
GATEWAY_PORT = 7600

# Below the kernel's ephemeral ports. Otherwise an outgoing connection could take a port while its
# owner is down, and a client that connects to a dead broker could connect to itself.
ALL_OTHER_PORTS = range(20_000, 32_000)
OTHER_PORTS = ALL_OTHER_PORTS
_MAX_ATTEMPTS = 200


class NoFreePortError(ClusterError):
    """No free port was found; `str(error)` names the ranges that were tried."""


def choose_every(step: int, first: int) -> None:
    """Chooses only every `step`-th port from now on, from the one with index `first` on. Processes
    of one machine that start clusters at the same time get different ports by it."""
    global OTHER_PORTS
    OTHER_PORTS = ALL_OTHER_PORTS[first::step]


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: ports in TIME_WAIT count as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def choose_port(preferred: int | None, *, taken: set[int], rng: random.Random) -> int:
    """Returns the preferred port if it is free, else another one.

    Adds it to `taken`, the ports of parts that do not listen yet.
    """
    candidates = [] if preferred is None else [preferred]
    attempts = min(_MAX_ATTEMPTS, len(OTHER_PORTS))
    candidates += rng.sample(OTHER_PORTS, attempts)
    for port in candidates:
        if port not in taken and is_free(port):
            taken.add(port)
            return port
    raise NoFreePortError(
        f"no free port on {HOST}: tried {preferred or 'none in particular'} and "
        f"{attempts} of {OTHER_PORTS.start} to {OTHER_PORTS.stop - 1}; end a process "
        "that listens there"
    )
