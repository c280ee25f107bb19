"""Whether anybody listens at an address: what a plain TCP connect says."""

from __future__ import annotations

import asyncio

from tidelog.inspection.explain import Listening

DIAL_TIMEOUT_MS = 1_000


async def dial(address: str) -> Listening:
    """Waits for at most DIAL_TIMEOUT_MS. A stopped process takes connections all the same:
    the kernel does it for it."""
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(host.strip("[]"), int(port)), DIAL_TIMEOUT_MS / 1000
        )
    except ConnectionRefusedError:
        return Listening.REFUSES
    except (OSError, ValueError, TimeoutError):
        return Listening.SILENT
    writer.close()
    return Listening.ACCEPTS
