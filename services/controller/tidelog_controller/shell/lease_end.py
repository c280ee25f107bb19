"""Revocation of a lease, which deletes its keys at once."""

from __future__ import annotations

import asyncio

from structlog.typing import FilteringBoundLogger

from tidelog_runtime.metadata.store import Lease, StoreError


async def end_lease(
    lease: Lease, timeout_seconds: float, log: FilteringBoundLogger, left: str
) -> None:
    """Revokes the lease.

    If the store does not answer in time, `left` is logged and the lease expires by itself.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            await lease.revoke()
    except (StoreError, TimeoutError):
        log.warning(left, remedy="the lease expires by itself")
