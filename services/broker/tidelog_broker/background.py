"""Tasks that run as long as the broker does."""

from __future__ import annotations

import asyncio

import structlog

from tidelog_runtime.metadata.store import StoreRolledBackError

_log = structlog.get_logger()


class Faults:
    """A background task ends only when it is cancelled. Anything else is a fault, with
    which the broker must not go on half alive: `found` is set, and whoever runs it stops
    it. A store that was rolled back is no such fault: what needs it ends, and the data
    plane goes on."""

    def __init__(self) -> None:
        self.found = asyncio.Event()

    def on_end(self, task: asyncio.Task[None]) -> None:
        """A task's done callback."""
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        _log.critical("task_failed", task=task.get_name(), exc_info=error)
        if not isinstance(error, StoreRolledBackError):
            self.found.set()
