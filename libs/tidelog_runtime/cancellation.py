"""Whose end a CancelledError is: the task's, or only that of what it waits for."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Whether somebody asked the running task to end. Otherwise what it waits for was
    cancelled: another task, or a call whose channel was closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
