"""Whether anybody listens at an address: what a plain TCP connect says."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from tidelog.inspection.explain import Listening

DIAL_TIMEOUT_MS = 1_000
# Of those that a name has.
MAX_ADDRESSES = 4


async def dial(address: str) -> Listening:
    """Waits for at most DIAL_TIMEOUT_MS, and for as long before it for the name: a name server
    that is away answers nothing. A stopped process takes connections all the same: the kernel
    does it for it."""
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
    refused = False
    for host, port in addresses[:MAX_ADDRESSES]:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            refused = True
        except OSError:
            continue
        else:
            writer.close()
            return Listening.ACCEPTS
    return Listening.REFUSES if refused else Listening.SILENT
