"""Ends a lease at once, and with it what stands under it."""

from __future__ import annotations

import asyncio

from structlog.typing import FilteringBoundLogger

from tidelog_runtime.metadata.store import Lease, StoreError


async def end_lease(
    lease: Lease, timeout_seconds: float, log: FilteringBoundLogger, left: str
) -> None:
    """Where the store cannot be told in time, `left` is logged, and it runs out."""
    try:
        async with asyncio.timeout(timeout_seconds):
            await lease.revoke()
    except (StoreError, TimeoutError):
        log.warning(left, remedy="it ends by itself")
