"""The health check of a service that serves HTTP."""

from __future__ import annotations

import asyncio

HEALTH_TIMEOUT_SECONDS = 1.0
_QUESTION = b"GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"


async def answers_http(address: str) -> bool:
    """Returns whether the service answers GET /health with 200."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(_QUESTION % address.encode())
                status = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False  # not started yet: the caller polls again
    return status.split(b" ")[1:2] == [b"200"]
