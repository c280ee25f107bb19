"""Fingerprints by which repeated requests for operations are recognized. Pure functions."""

from __future__ import annotations

import hashlib
import json

from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    OtherFactor,
    Reassignment,
    Rebalancing,
    RemovedBrokers,
    RequestedOperation,
    Reversal,
)
from tidelog_runtime.metadata.operations import OperationKind

_KINDS: dict[type, OperationKind] = {
    Reassignment: OperationKind.REASSIGNMENT,
    Rebalancing: OperationKind.REBALANCE,
    AddedBrokers: OperationKind.BROKERS_ADD,
    RemovedBrokers: OperationKind.BROKERS_REMOVE,
    OtherFactor: OperationKind.SET_REPLICATION_FACTOR,
    Reversal: OperationKind.REVERSAL,
}


def kind_of(wanted: RequestedOperation) -> OperationKind:
    return _KINDS[type(wanted)]


def fingerprint_of(wanted: RequestedOperation) -> tuple[OperationKind, str]:
    """A fingerprint by which a repeated request is recognized."""
    return kind_of(wanted), canonical_text(wanted)


def canonical_text(wanted: RequestedOperation) -> str:
    """The request as JSON in a canonical form.

    Requested moves, which may be many, are represented by their digest.
    """
    match wanted:
        case Reassignment(moves):
            text = json.dumps([list(move) for move in sorted(moves)])
            digest = hashlib.sha256(text.encode()).hexdigest()
            return json.dumps({"moves": len(moves), "sha256": digest})
        case Rebalancing():
            return "{}"
        case AddedBrokers(broker_ids) | RemovedBrokers(broker_ids):
            return json.dumps({"broker_ids": sorted(set(broker_ids))})
        case OtherFactor(topics, factor):
            return json.dumps({"replication_factor": factor, "topics": sorted(set(topics))})
        case Reversal(operation_id):
            return json.dumps({"reversed_operation_id": operation_id})
