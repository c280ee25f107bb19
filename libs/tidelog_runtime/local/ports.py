"""Which ports the parts of a local cluster listen on."""

from __future__ import annotations

import random
import socket

from tidelog_runtime.local.errors import ClusterError

HOST = "127.0.0.1"
CONTROLLER_BASE_PORT = 7400
BROKER_BASE_PORT = 7500
GATEWAY_PORT = 7600

# Below the kernel's ephemeral ports: an outgoing connection never takes one of these
# while its owner is down, and a client that dials a dead broker never meets itself.
OTHER_PORTS = range(20_000, 32_000)
_MAX_ATTEMPTS = 200


class NoFreePortError(ClusterError):
    """No port could be found; `str(error)` says where was looked."""


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do it: what lingers of old connections does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def choose_port(preferred: int | None, *, taken: set[int], rng: random.Random) -> int:
    """The preferred port if it is free, else another one; adds it to `taken`, the ports
    given to parts that do not listen yet."""
    candidates = [] if preferred is None else [preferred]
    candidates += rng.sample(OTHER_PORTS, _MAX_ATTEMPTS)
    for port in candidates:
        if port not in taken and is_free(port):
            taken.add(port)
            return port
    raise NoFreePortError(
        f"no free port on {HOST}: tried {preferred or 'none in particular'} and "
        f"{_MAX_ATTEMPTS} of {OTHER_PORTS.start} to {OTHER_PORTS.stop - 1}; end a process "
        "that listens there"
    )
