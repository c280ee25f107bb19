"""Distinguishes the causes of a CancelledError: the task or the object it awaits was cancelled."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Returns whether the running task itself is being cancelled.

    If not, a `CancelledError` means that the awaited object was cancelled: another task, or a
    call whose channel was closed.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
