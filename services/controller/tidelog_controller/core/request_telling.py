"""Events about the transactions of admin requests, emitted when the transactions begin."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Change, Detail, Kind, Stage
from tidelog_controller.requests.taking_back import taken_back_texts
from tidelog_controller.state.admin_requests import Caller
from tidelog_controller.state.commands import Tell
from tidelog_controller.state.purposes import (
    DeletionIntent,
    MaintenanceChange,
    OperationCommit,
    OperationUpdate,
    Purpose,
    RecoveryIntent,
    ThrottleChange,
    TopicChange,
    TopicCreation,
)
from tidelog_runtime.metadata.schema import RecoveryConsent
from tidelog_runtime.metadata.topic_intents import PartitionsAddition


def requested_by(purpose: Purpose, change: Change) -> list[Tell]:
    """Returns the `REQUESTED` events of a transaction.

    `change`: still without the trace that it belongs to.
    """
    match purpose:
        case TopicCreation(topic, entry):
            change = change._replace(trace_id=entry.trace_id)
            size: dict[str, Detail] = {
                "partitions": entry.partitions,
                "replication_factor": entry.replication_factor,
                **asked_by(purpose.caller),
            }
            if entry.config:
                size["config"] = [f"{key}={entry.config[key]}" for key in sorted(entry.config)]
            return [
                Tell(
                    Kind.TOPIC_CREATION,
                    Stage.REQUESTED,
                    change,
                    topic=topic,
                    topic_id=entry.topic_id,
                    details=size,
                )
            ]
        case DeletionIntent(topic, topic_id, _, trace_id):
            change = change._replace(trace_id=trace_id)
            return [
                Tell(
                    Kind.TOPIC_DELETION,
                    Stage.REQUESTED,
                    change,
                    topic=topic,
                    topic_id=topic_id,
                    details=asked_by(purpose.caller),
                )
            ]
        case TopicChange():
            return [_change_requested(purpose, change)]
        case OperationCommit() | OperationUpdate() | ThrottleChange():
            return [_operation_requested(purpose, change)]
        case MaintenanceChange(marked, unmarked, caller, trace_id):
            change = change._replace(trace_id=trace_id)
            brokers = [(b, True) for b in marked] + [(b, False) for b, _ in unmarked]
            return [
                Tell(
                    Kind.BROKER_MAINTENANCE,
                    Stage.REQUESTED,
                    change,
                    broker=broker_id,
                    details={"maintenance": begins, **asked_by(caller)},
                )
                for broker_id, begins in brokers
            ]
        case RecoveryIntent(_, _, consent, partitions):
            names = [partition for partition, _, _ in partitions]
            return _recovery_requested(consent, names, purpose.caller, change)
        case _:
            return []


def _recovery_requested(
    consent: RecoveryConsent, partitions: Sequence[TopicPartition], caller: Caller, change: Change
) -> list[Tell]:
    change = change._replace(trace_id=consent.trace_id)
    details: dict[str, Detail] = {
        "from_live_replicas": consent.from_live_replicas,
        **asked_by(caller),
    }
    if consent.broker_id != NO_LEADER:
        details["leader"] = consent.broker_id
    return [
        Tell(
            Kind.RECOVERY_CONSENT,
            Stage.REQUESTED,
            change,
            partition,
            topic_id=consent.topic_id,
            details=details,
        )
        for partition in partitions
    ]


def _change_requested(purpose: TopicChange, change: Change) -> Tell:
    change = change._replace(trace_id=purpose.trace_id)
    kind = Kind.TOPIC_CONFIG
    details: dict[str, Detail] = {"changes": list(purpose.described)}
    if purpose.intent is not None:
        added = isinstance(purpose.intent, PartitionsAddition)
        kind = Kind.PARTITIONS_ADDITION if added else Kind.PARTITIONS_REMOVAL
        details = {"first": purpose.intent.first, "partitions": purpose.entry.partitions}
    details |= asked_by(purpose.caller)
    return Tell(
        kind,
        Stage.REQUESTED,
        change,
        topic=purpose.topic,
        topic_id=purpose.entry.topic_id,
        details=details,
    )


def asked_by(caller: Caller) -> dict[str, Detail]:
    said = {"requested_by": caller.name, "requested_from": caller.address}
    return {name: value for name, value in said.items() if value}


def _operation_requested(
    purpose: OperationCommit | OperationUpdate | ThrottleChange, change: Change
) -> Tell:
    if isinstance(purpose, ThrottleChange):
        change = change._replace(trace_id=purpose.trace_id)
        before, after = (_bound(b) for b in (purpose.before, purpose.bytes_per_second))
        details: dict[str, Detail] = {"before": before, "after": after, **asked_by(purpose.caller)}
        return Tell(Kind.THROTTLE, Stage.REQUESTED, change, details=details)
    entry = purpose.entry
    change = change._replace(trace_id=entry.trace_id)
    details = {
        "operation": purpose.operation_id,
        "operation_kind": entry.kind.value,
        "moves": entry.moves,
    }
    if isinstance(purpose, OperationCommit):
        details |= {"request": entry.request}
        details |= asked_by(Caller(entry.requested_by, entry.requested_from))
        return Tell(Kind.OPERATION_BEGUN, Stage.REQUESTED, change, details=details)
    if entry.reason:
        details["reason"] = entry.reason
    if not entry.state.has_ended:
        details |= asked_by(purpose.caller)
        taken_back = list(taken_back_texts(purpose.marks, purpose.topics))
        if taken_back:
            details["taken_back"] = taken_back
        return Tell(Kind.OPERATION_CANCELLING, Stage.REQUESTED, change, details=details)
    details |= {
        "state": entry.state.value,
        "moves_done": entry.moves_done,
        "moves_dropped": entry.moves_dropped,
    }
    return Tell(Kind.OPERATION_ENDED, Stage.REQUESTED, change, details=details)


def _bound(bytes_per_second: int | None) -> str:
    return "none" if bytes_per_second is None else f"{bytes_per_second} bytes/s"
