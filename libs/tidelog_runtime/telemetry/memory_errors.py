"""Filters what libraries log while a process has no memory.

One request after another fails then, each with a traceback, until the process ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tidelog.memory_shortage import is_memory_shortage

INTERVAL_SECONDS = 10.0


class MemoryErrorFilter(logging.Filter):
    """Calls `report` at the first record of a memory shortage, and lets that record pass.

    Of later ones it lets one pass every INTERVAL_SECONDS, without traceback.
    """

    def __init__(
        self, report: Callable[[], None], seconds: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._report = report
        self._seconds = seconds
        self._passed_at: float | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.exc_info or not is_memory_shortage(record.exc_info[1]):
            return True
        now = self._seconds()
        if self._passed_at is None:
            self._report()
        elif now - self._passed_at < INTERVAL_SECONDS:
            return False
        else:
            record.exc_info = None
        self._passed_at = now
        return True
