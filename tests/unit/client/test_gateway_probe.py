"""State of a silent gateway, as its address shows it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tidelog.client import gateway_probe
from tidelog.client.gateway_probe import dial_gateway
from tidelog.inspection.explain import Listening
from tidelog.inspection.gateway_reports import AnnouncedGateway


def at(address: str, host: str = "") -> AnnouncedGateway:
    return AnnouncedGateway(address, host or socket.gethostname(), 7, "0.1.0", 0, 20_000)


async def test_a_gateway_that_answers_http_is_busy() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await dial_gateway(at(f"127.0.0.1:{port}")) is Listening.BUSY


async def test_a_paused_gateway_accepts_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_probe, "DIAL_GATEWAY_MS", 200)
    # The kernel does the same for a stopped process.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert await dial_gateway(at(f"127.0.0.1:{port}")) is Listening.ACCEPTS


async def test_a_dead_gateway_refuses_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert await dial_gateway(at(f"127.0.0.1:{port}")) is Listening.REFUSES


async def test_the_loopback_address_of_another_host_is_not_dialled() -> None:
    assert await dial_gateway(at("127.0.0.1:7600", "elsewhere")) is None
