"""Every metric of every service, for dashboards, alerts and tests."""

from __future__ import annotations

from tidelog_runtime.telemetry.metrics.broker_catalogue import BROKER_METRICS
from tidelog_runtime.telemetry.metrics.controller_catalogue import CONTROLLER_METRICS
from tidelog_runtime.telemetry.metrics.gateway_catalogue import GATEWAY_METRICS
from tidelog_runtime.telemetry.metrics.metric import Metric

CATALOGUE: dict[str, tuple[Metric, ...]] = {
    "admin-api": GATEWAY_METRICS,
    "broker": BROKER_METRICS,
    "controller": CONTROLLER_METRICS,
}
