"""Metrics of the gateway: answered requests, pending requests, open streams, and searches."""

from __future__ import annotations

import time
from collections.abc import Callable

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidelog.caller_limits import GATEWAY_LIMITS
from tidelog.version import installed_version
from tidelog_admin_api.limits import Usage
from tidelog_admin_api.overviews import Overviews
from tidelog_runtime.telemetry.metrics.gateway_catalogue import (
    GATEWAY_DURATION,
    GATEWAY_METRICS,
    GATEWAY_OVERVIEW_AGE,
    GATEWAY_PENDING,
    GATEWAY_REJECTIONS,
    GATEWAY_REQUESTS,
    GATEWAY_SEARCHED,
    GATEWAY_SEARCHES,
    GATEWAY_STREAMS,
    METHODS,
)
from tidelog_runtime.telemetry.metrics.http_server import Exposition
from tidelog_runtime.telemetry.metrics.recording import Counts, HistogramFamily
from tidelog_runtime.telemetry.metrics.service_metrics import LoopWatch
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot

# All requests without a route have this label, so that they are a single series.
NO_ROUTE = "none"
_OTHER_METHOD = METHODS[-1]

router = APIRouter(tags=["health"])


class GatewayMetrics:
    """Collects the gateway's metrics.

    - `seconds`: a monotonic clock
    """

    def __init__(
        self,
        cluster: str,
        usage: Usage,
        overviews: Overviews,
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.seconds = seconds
        self.watch = LoopWatch(seconds)
        self._usage = usage
        self._overviews = overviews
        self._requests = Counts(GATEWAY_REQUESTS)
        self._durations = HistogramFamily(GATEWAY_DURATION)
        build = ("admin-api", cluster, installed_version())
        self._exposition = Exposition(GATEWAY_METRICS, self.collect, self.watch, build)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        known = method if method in METHODS else _OTHER_METHOD
        self._requests.add(route, known, str(status))
        self._durations.of(known).observe(seconds)

    async def collect(self, snapshot: MetricsSnapshot) -> None:
        snapshot.set_counters(self._requests)
        snapshot.set_histograms(self._durations)
        snapshot.set(GATEWAY_PENDING, self._usage.requests)
        snapshot.set(GATEWAY_STREAMS, self._usage.streams)
        snapshot.set(GATEWAY_SEARCHES, self._usage.searches.total())
        snapshot.set(GATEWAY_SEARCHED, self._usage.searched_records)
        for limit in GATEWAY_LIMITS:
            snapshot.set(GATEWAY_REJECTIONS, self._usage.rejections[limit], limit)
        age_ms = self._overviews.age_ms
        if age_ms is not None:
            snapshot.set(GATEWAY_OVERVIEW_AGE, age_ms / 1000)

    async def response(self) -> Response:
        return Response(
            await self._exposition.text(), headers={"Content-Type": self._exposition.content_type}
        )


@router.get("/metrics", include_in_schema=False)
async def read_metrics(request: Request) -> Response:
    metrics: GatewayMetrics = request.app.state.metrics
    return await metrics.response()
