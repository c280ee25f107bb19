"""Metrics of a service's clients: their requests, and the rejections by limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidelog.caller_limits import Callers
from tidelog_runtime.telemetry.metrics.service_catalogue import (
    CLIENT_REJECTIONS,
    CLIENT_REQUESTS,
)
from tidelog_runtime.telemetry.metrics.sheet import Sheet

Collect = Callable[[Sheet], Awaitable[None]]


def with_callers(collect: Collect, callers: Callers) -> Collect:
    async def collect_all(sheet: Sheet) -> None:
        sheet.tell(CLIENT_REQUESTS, callers.requests)
        for limit in callers.limits._fields:
            sheet.tell(CLIENT_REJECTIONS, callers.rejected[limit], limit)
        await collect(sheet)

    return collect_all
