"""The ports on which the parts of a local cluster listen."""

from __future__ import annotations

import random
import socket

from tidelog_runtime.local.errors import ClusterError

HOST = "127.0.0.1"
CONTROLLER_BASE_PORT = 7400
BROKER_BASE_PORT = 7500
GATEWAY_PORT = 7600

# Below the kernel's ephemeral ports. Otherwise an outgoing connection could take a port while its
# owner is down, and a client that connects to a dead broker could connect to itself.
OTHER_PORTS = range(20_000, 32_000)
_MAX_ATTEMPTS = 200


class NoFreePortError(ClusterError):
    """No free port was found; `str(error)` names the ranges that were tried."""


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
