"""Whether anybody listens at an address: what a plain TCP connect says."""

from __future__ import annotations

import asyncio
import socket

from tidelog.inspection.explain import Listening

DIAL_TIMEOUT_MS = 1_000


async def dial(address: str) -> Listening:
    """Waits for at most DIAL_TIMEOUT_MS. A stopped process takes connections all the same:
    the kernel does it for it."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_MS / 1000):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return Listening.REFUSES
    except socket.gaierror:
        return Listening.UNRESOLVED
    except (OSError, ValueError, TimeoutError):
        return Listening.SILENT
    writer.close()
    return Listening.ACCEPTS
