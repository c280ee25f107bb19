"""Waiting for what will be true soon, with a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

# Between two checks: a tenth of the time that has passed, within these bounds. Checks cost the
# services processor time, which the test beside this one needs.
MIN_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 0.25
# Generous: what it bounds takes a second or two on a machine that has nothing else to do.
TIMEOUT_SECONDS = 30.0

T = TypeVar("T")


async def until(
    look: Callable[[], Awaitable[T]], what: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> T:
    """The first true value that `look` gives. Fails, with the last one, when the time is
    up; what `look` raises passes through."""
    seen: object = "nothing yet"
    started = time.monotonic()
    try:
        async with asyncio.timeout(timeout_seconds):
            while not (found := await look()):
                seen = found
                pause = (time.monotonic() - started) / 10
                await asyncio.sleep(min(max(pause, MIN_POLL_SECONDS), MAX_POLL_SECONDS))
            return found
    except TimeoutError:
        raise AssertionError(f"not within {timeout_seconds:g} s: {what}; last: {seen!r}") from None


async def until_true(
    look: Callable[[], bool], what: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> None:
    async def ask() -> bool:
        return look()

    await until(ask, what, timeout_seconds)
