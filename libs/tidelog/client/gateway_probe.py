"""Gateways that a cluster's controllers know, and whether a silent gateway answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable

from tidelog.client.connections import InspectConnections
from tidelog.client.tcp_dial import dial
from tidelog.errors import TidelogError
from tidelog.inspection.explain import Listening
from tidelog.inspection.gateway_reports import AnnouncedGateway, is_loopback, known_gateways
from tidelog.inspection.state_reports import ServiceState, StateRequest
from tidelog.rpc.message_codec import from_wire, to_wire
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import inspect_pb2

# Total time for the name, the connection and the answer.
DIAL_GATEWAY_MS = 2_000
_REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

DialGateway = Callable[[AnnouncedGateway], Awaitable[Listening | None]]


async def find_gateways(
    controllers: Iterable[str], connections: InspectConnections, timeout_ms: int
) -> list[AnnouncedGateway]:
    """Returns the gateways that controllers know. `controllers`: their addresses; those that do not
    answer are left out."""
    request = to_wire(StateRequest(services_only=True), inspect_pb2.DescribeServiceRequest)

    async def ask(address: str) -> ServiceState | None:
        try:
            answer = await connections.inspected(address).describe_service(request, timeout_ms)
        except (UnreachableError, TidelogError):
            return None
        return from_wire(answer, ServiceState)

    states = await asyncio.gather(*map(ask, controllers))
    return known_gateways(state for state in states if state is not None)


async def dial_gateway(gateway: AnnouncedGateway) -> Listening | None:
    """Probes a gateway with a TCP connection and, if it is accepted, one HTTP request. BUSY: it
    answers HTTP. None: its address is a loopback address of another machine."""
    if is_loopback(gateway.address) and gateway.host != socket.gethostname():
        return None
    listening = Listening.SILENT
    try:
        async with asyncio.timeout(DIAL_GATEWAY_MS / 1000):
            listening = await dial(gateway.address)
            if listening is Listening.ACCEPTS and await _answers(gateway.address):
                return Listening.BUSY
    except TimeoutError:
        pass
    return listening


async def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:
        return False
    try:
        writer.write(_REQUEST)
        return (await reader.read(5)).startswith(b"HTTP/")
    except OSError:
        return False
    finally:
        writer.close()
