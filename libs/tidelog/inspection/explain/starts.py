"""Describes the progress of a broker's start."""

from __future__ import annotations

from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import span
from tidelog.inspection.state_reports import (
    OPENS_LOGS,
    READS_METADATA,
    REGISTERS,
    TAKES_STATES,
    WAITS_FOR_STORE,
    BrokerBacklog,
)
from tidelog.phrases import plural

_BEFORE_REGISTRATION = frozenset({WAITS_FOR_STORE, OPENS_LOGS, READS_METADATA, REGISTERS})
_WAITS_FOR_STATES = "waits for a controller to send its replicas"


def phase_of(view: ClusterView, broker_id: int) -> str:
    """Continues a sentence "it …"."""
    broker = view.broker_states[broker_id]
    if broker.start_phase == OPENS_LOGS:
        return f"opens its logs, {broker.start_done:,} of {broker.start_total:,} so far"
    if broker.start_phase == TAKES_STATES and broker.start_total:
        done, total = broker.start_done, broker.start_total
        return f"receives its replicas' states from a controller, {done:,} of {total:,} so far"
    return waits_for(view, broker_id)


def waits_for(view: ClusterView, broker_id: int) -> str:
    """Continues a sentence "it …" if something that the start needs is missing."""
    return {
        WAITS_FOR_STORE: "waits for the cluster id from the metadata store",
        OPENS_LOGS: "opens its logs, and then waits for the metadata store",
        READS_METADATA: "reads the cluster's metadata from the store",
        REGISTERS: "registers in the metadata store",
    }.get(view.broker_states[broker_id].start_phase, _WAITS_FOR_STATES)


def has_yet_to_register(view: ClusterView, broker_id: int) -> bool:
    """Whether other services know only the previous incarnation, which has ended."""
    broker = view.broker_states.get(broker_id)
    return broker is not None and broker.is_starting and broker.start_phase in _BEFORE_REGISTRATION


def waits_for_states(view: ClusterView, broker_id: int) -> bool:
    """Whether the controller has to send the states of the broker's replicas next."""
    broker = view.broker_states.get(broker_id)
    return broker is not None and broker.is_starting and broker.start_phase == TAKES_STATES


def receiving_full_state(backlog: BrokerBacklog) -> str:
    """Continues a sentence "because …" about an incarnation that the controller has known only for
    a short time."""
    size = plural(backlog.full_state_size, "replica")
    left = f"{backlog.pending:,} of their states are" if backlog.pending else "none of these is"
    return (
        f"it is busy with its full state of {size}: the controller has known this incarnation for "
        f"{span(backlog.known_for_ms)}, and {left} yet to be acknowledged"
    )
