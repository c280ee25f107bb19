"""Results of a plain TCP connect to an address."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tidelog.client import tcp_dial
from tidelog.client.tcp_dial import dial
from tidelog.inspection.explain import Listening


async def test_a_listener_accepts_connections_and_a_closed_port_refuses_them() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert await dial(f"127.0.0.1:{port}") is Listening.REFUSES
        listener.listen()
        assert await dial(f"127.0.0.1:{port}") is Listening.ACCEPTS
        assert await dial(f"localhost:{port}") is Listening.ACCEPTS


@pytest.mark.parametrize("how", ["there is no such name", "no name server answers"])
async def test_an_unresolvable_name_is_reported(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    async def resolve(*_: Any, **__: Any) -> Any:
        if how == "there is no such name":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        await asyncio.sleep(60)

    monkeypatch.setattr(tcp_dial, "DIAL_TIMEOUT_MS", 50)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    assert await dial("broker-3.sea:7303") is Listening.UNRESOLVED


async def test_an_invalid_address_is_reported() -> None:
    assert await dial("127.0.0.1:no") is Listening.SILENT
    assert await dial(f"{'x' * 70}.sea:7303") is Listening.UNRESOLVED
