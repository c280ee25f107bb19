"""Waits, with a timeout, for conditions that will soon be true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

# The pause between two checks: a tenth of the elapsed time, within these bounds. Checks cost
# processor time of the services, which the test beside this one needs.
MIN_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 0.25
# Generous: on an idle machine these waits take a second or two.
TIMEOUT_SECONDS = 30.0

T = TypeVar("T")


async def until(
    check: Callable[[], Awaitable[T]], what: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> T:
    """Returns the first true value of `check`. Fails with its last value when the time is up;
    exceptions of `check` are passed on."""
    seen: object = "nothing yet"
    started = time.monotonic()
    try:
        async with asyncio.timeout(timeout_seconds):
            while not (found := await check()):
                seen = found
                pause = (time.monotonic() - started) / 10
                await asyncio.sleep(min(max(pause, MIN_POLL_SECONDS), MAX_POLL_SECONDS))
            return found
    except TimeoutError:
        raise AssertionError(f"not within {timeout_seconds:g} s: {what}; last: {seen!r}") from None


async def until_true(
    check: Callable[[], bool], what: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> None:
    async def ask() -> bool:
        return check()

    await until(ask, what, timeout_seconds)
