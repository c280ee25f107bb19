"""How far a broker's start has come, in words."""

from __future__ import annotations

from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.model import (
    OPENS_LOGS,
    READS_METADATA,
    REGISTERS,
    TAKES_STATES,
    WAITS_FOR_STORE,
    BrokerState,
)

_WAITS_FOR_STATES = "waits for a controller to tell it its replicas"


def phase_of(view: ClusterView, broker_id: int) -> str:
    """What goes on "it …"."""
    broker = _broker(view, broker_id)
    if broker.start_phase == OPENS_LOGS:
        return f"opens its logs, {broker.start_done:,} of {broker.start_total:,} so far"
    if broker.start_phase == TAKES_STATES and broker.start_total:
        done, total = broker.start_done, broker.start_total
        return f"takes its replicas' states from a controller, {done:,} of {total:,} so far"
    return waits_for(view, broker_id)


def waits_for(view: ClusterView, broker_id: int) -> str:
    """What goes on "it …", where something else is away."""
    return {
        WAITS_FOR_STORE: "waits for the metadata store to tell which cluster this is",
        OPENS_LOGS: "opens its logs, and then waits for the metadata store",
        READS_METADATA: "reads the cluster's metadata from the store",
        REGISTERS: "registers in the metadata store",
    }.get(_broker(view, broker_id).start_phase, _WAITS_FOR_STATES)


def _broker(view: ClusterView, broker_id: int) -> BrokerState:
    broker = view.brokers[broker_id].broker
    assert broker is not None
    return broker
