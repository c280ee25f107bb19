"""Delivery timeouts of records that have not been sent yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelog.client.clock import Clock
from tidelog.errors import ErrorCode, TidelogError


@asynccontextmanager
async def unsent_after(clock: Clock, deadline_ms: int, missing: str) -> AsyncIterator[None]:
    """Raises REQUEST_TIMED_OUT, with a known outcome, if the block is not done by `deadline_ms`.
    `missing`: the condition that the block waits for, as a clause."""
    try:
        async with asyncio.timeout(max(deadline_ms - clock.monotonic_ms(), 0) / 1000):
            yield
    except TimeoutError:
        raise TidelogError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"not sent within delivery_timeout_ms: {missing}; nothing was written",
            outcome_unknown=False,
        ) from None
