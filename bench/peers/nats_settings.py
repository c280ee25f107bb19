"""The configuration of NATS servers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Server(NamedTuple):
    name: str
    port: int
    route_port: int

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"


def configuration(server: Server, servers: Sequence[Server], store: str) -> str:
    """Returns what NATS documents for a cluster with JetStream; other settings are defaults."""
    routes = ", ".join(f'"nats://127.0.0.1:{one.route_port}"' for one in servers)
    return (
        f'server_name: "{server.name}"\n'
        f'listen: "127.0.0.1:{server.port}"\n'
        f'jetstream {{ store_dir: "{store}" }}\n'
        f'cluster {{ name: "bench", listen: "127.0.0.1:{server.route_port}", '
        f"routes: [{routes}] }}\n"
    )
