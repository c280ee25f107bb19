"""Tasks that run as long as the broker does."""

from __future__ import annotations

import asyncio

import structlog

_log = structlog.get_logger()


def report_end(task: asyncio.Task[None]) -> None:
    """A background task ends only when it is cancelled; anything else is a fault that must
    be seen."""
    if not task.cancelled() and task.exception() is not None:
        _log.critical("task_failed", task=task.get_name(), exc_info=task.exception())
