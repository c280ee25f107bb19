"""Shortens what is logged while a process has no memory.

One request after another fails then, until the process ends. A traceback shows only the last of
many allocations, so none is logged.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

from structlog.typing import EventDict, WrappedLogger

from tidelog.memory_shortage import (
    described,
    is_memory_shortage,
    is_only_shortage,
    origin,
    shortage_in,
)

INTERVAL_SECONDS = 10.0


def drop_memory_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replaces the traceback of a memory shortage by its message and origin, in the fields `why`
    and `raised`. A processor of structlog."""
    match event.get("exc_info"):
        case BaseException() as error:
            pass
        case (_, error, _):
            pass
        case True:
            error = sys.exc_info()[1]
        case _:
            return event
    shortage = shortage_in(error)
    if shortage is not None and is_only_shortage(error):
        del event["exc_info"]
        why = described(shortage)
        event["why"] = f"{event['why']}; {why}" if event.get("why") else why
        if raised := origin(shortage):
            event["raised"] = raised
    return event


class MemoryErrorFilter(logging.Filter):
    """Limits what libraries log about a memory shortage.

    Calls `report` at the first record, and lets one record pass every INTERVAL_SECONDS.
    `drop_memory_traceback` shortens what passes.
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
        self._passed_at = now
        return True
