"""Sends a query to several services, one after another, until one of them answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

# If a service does not answer within this time, the next one is queried as well. The first answer
# counts.
HEDGE_MS = 250

_Answer = TypeVar("_Answer")


async def first_answer(
    addresses: Sequence[str],
    ask: Callable[[str], Coroutine[Any, Any, _Answer]],
    hedge_ms: int,
    passing: tuple[type[Exception], ...],
) -> tuple[_Answer | None, list[BaseException]]:
    """Returns the first answer, and the errors before it.

    If a service has failed, or has not answered within `hedge_ms`, the next one is queried as well.
    The answer is None if all services failed with an error in `passing`; other errors are
    raised."""
    left = list(addresses)
    failures: list[BaseException] = []
    # In the order of the queries, which decides between answers that arrive at the same moment.
    # Finished tasks are removed.
    tasks: list[asyncio.Task[_Answer]] = []
    try:
        while left or tasks:
            if left:
                tasks.append(asyncio.create_task(ask(left.pop(0))))
            await asyncio.wait(
                tasks,
                timeout=hedge_ms / 1000 if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in [task for task in tasks if task.done()]:
                tasks.remove(task)
                error = task.exception()
                if error is None:
                    return task.result(), failures
                if not isinstance(error, passing):
                    raise error
                failures.append(error)
    finally:
        for task in tasks:
            task.cancel()
        # Awaited, so that none outlives the channels, and so that their errors, which no longer
        # count, are retrieved.
        await asyncio.gather(*tasks, return_exceptions=True)
    return None, failures
