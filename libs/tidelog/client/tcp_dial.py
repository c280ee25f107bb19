"""Checks with a plain TCP connect whether a process listens at an address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from tidelog.inspection.explain import Listening
from tidelog.rpc.greeting import greeting

DIAL_TIMEOUT_MS = 1_000
# Addresses of one name that are tried.
MAX_ADDRESSES = 4


async def dial_service(address: str) -> Listening:
    """Like `dial`, and also recognizes other programs by what they send on a second connection."""
    listening = await dial(address)
    if listening is not Listening.ACCEPTS:
        return listening
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_MS / 1000):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return listening
    try:
        found = await greeting(reader, writer)
    finally:
        writer.close()
    return Listening(found.value) if found.is_foreign else listening


async def dial(address: str) -> Listening:
    """Connects for DIAL_TIMEOUT_MS at most, after resolving the name within the same time, because
    a name server that is down does not answer. A stopped process still accepts connections: the
    kernel does it."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_MS / 1000):
            found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError, TimeoutError):
        return Listening.UNRESOLVED
    except (OSError, ValueError):
        return Listening.SILENT
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_MS / 1000):
            return await _connect([(str(name[0]), int(name[1])) for *_, name in found])
    except TimeoutError:
        return Listening.SILENT


async def _connect(addresses: Sequence[tuple[str, int]]) -> Listening:
    rejected = False
    for host, port in addresses[:MAX_ADDRESSES]:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            rejected = True
        except OSError:
            continue
        else:
            writer.close()
            return Listening.ACCEPTS
    return Listening.REFUSES if rejected else Listening.SILENT
