"""Events about the transactions of admin requests, emitted when the transactions begin."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Change, Detail, Kind, Stage
from tidelog_controller.requests.rollback import rollback_texts
from tidelog_controller.state.admin_requests import Caller
from tidelog_controller.state.commands import EmitEvent
from tidelog_controller.state.mutations import (
    DeletionIntent,
    LevelChange,
    MaintenanceChange,
    Mutation,
    OperationCommit,
    OperationUpdate,
    RecoveryIntent,
    ThrottleChange,
    TopicChange,
    TopicCreation,
)
from tidelog_runtime.metadata.schema import RecoveryConsent
from tidelog_runtime.metadata.topic_intents import PartitionsAddition


def requested_by(mutation: Mutation, change: Change) -> list[EmitEvent]:
    """Returns the `REQUESTED` events of a transaction.

    `change`: still without the trace that it belongs to.
    """
    match mutation:
        case TopicCreation(topic, entry):
            change = change._replace(trace_id=entry.trace_id)
            size: dict[str, Detail] = {
                "partitions": entry.partitions,
                "replication_factor": entry.replication_factor,
                **caller_details(mutation.caller),
            }
            if entry.config:
                size["config"] = [f"{key}={entry.config[key]}" for key in sorted(entry.config)]
            return [
                EmitEvent(
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
                EmitEvent(
                    Kind.TOPIC_DELETION,
                    Stage.REQUESTED,
                    change,
                    topic=topic,
                    topic_id=topic_id,
                    details=caller_details(mutation.caller),
                )
            ]
        case TopicChange():
            return [_change_requested(mutation, change)]
        case OperationCommit() | OperationUpdate() | ThrottleChange():
            return [_operation_requested(mutation, change)]
        case LevelChange(entry, level, _, _, caller, trace_id):
            before = entry.format_version
            details = {"before": before, "after": level, **caller_details(caller)}
            change = change._replace(trace_id=trace_id)
            return [EmitEvent(Kind.FEATURE_LEVEL, Stage.REQUESTED, change, details=details)]
        case MaintenanceChange(marked, unmarked, caller, trace_id):
            change = change._replace(trace_id=trace_id)
            brokers = [(b, True) for b in marked] + [(b, False) for b, _ in unmarked]
            return [
                EmitEvent(
                    Kind.BROKER_MAINTENANCE,
                    Stage.REQUESTED,
                    change,
                    broker=broker_id,
                    details={"maintenance": begins, **caller_details(caller)},
                )
                for broker_id, begins in brokers
            ]
        case RecoveryIntent(_, _, consent, partitions):
            names = [partition for partition, _, _ in partitions]
            return _recovery_requested(consent, names, mutation.caller, change)
        case _:
            return []


def _recovery_requested(
    consent: RecoveryConsent, partitions: Sequence[TopicPartition], caller: Caller, change: Change
) -> list[EmitEvent]:
    change = change._replace(trace_id=consent.trace_id)
    details: dict[str, Detail] = {
        "from_live_replicas": consent.from_live_replicas,
        **caller_details(caller),
    }
    if consent.broker_id != NO_LEADER:
        details["leader"] = consent.broker_id
    return [
        EmitEvent(
            Kind.RECOVERY_CONSENT,
            Stage.REQUESTED,
            change,
            partition,
            topic_id=consent.topic_id,
            details=details,
        )
        for partition in partitions
    ]


def _change_requested(mutation: TopicChange, change: Change) -> EmitEvent:
    change = change._replace(trace_id=mutation.trace_id)
    kind = Kind.TOPIC_CONFIG
    details: dict[str, Detail] = {"changes": list(mutation.described)}
    if mutation.intent is not None:
        added = isinstance(mutation.intent, PartitionsAddition)
        kind = Kind.PARTITIONS_ADDITION if added else Kind.PARTITIONS_REMOVAL
        details = {"first": mutation.intent.first, "partitions": mutation.entry.partitions}
    details |= caller_details(mutation.caller)
    return EmitEvent(
        kind,
        Stage.REQUESTED,
        change,
        topic=mutation.topic,
        topic_id=mutation.entry.topic_id,
        details=details,
    )


def caller_details(caller: Caller) -> dict[str, Detail]:
    said = {"requested_by": caller.name, "requested_from": caller.address}
    return {name: value for name, value in said.items() if value}


def _operation_requested(
    mutation: OperationCommit | OperationUpdate | ThrottleChange, change: Change
) -> EmitEvent:
    if isinstance(mutation, ThrottleChange):
        change = change._replace(trace_id=mutation.trace_id)
        before, after = (_bound(b) for b in (mutation.before, mutation.bytes_per_second))
        details: dict[str, Detail] = {
            "before": before,
            "after": after,
            **caller_details(mutation.caller),
        }
        return EmitEvent(Kind.THROTTLE, Stage.REQUESTED, change, details=details)
    entry = mutation.entry
    change = change._replace(trace_id=entry.trace_id)
    details = {
        "operation": mutation.operation_id,
        "operation_kind": entry.kind.value,
        "moves": entry.moves,
    }
    if isinstance(mutation, OperationCommit):
        details |= {"request": entry.request}
        details |= caller_details(Caller(entry.requested_by, entry.requested_from))
        return EmitEvent(Kind.OPERATION_BEGUN, Stage.REQUESTED, change, details=details)
    if entry.reason:
        details["reason"] = entry.reason
    if not entry.state.has_ended:
        details |= caller_details(mutation.caller)
        taken_back = list(rollback_texts(mutation.marks, mutation.topics))
        if taken_back:
            details["taken_back"] = taken_back
        return EmitEvent(Kind.OPERATION_CANCELLING, Stage.REQUESTED, change, details=details)
    details |= {
        "state": entry.state.value,
        "moves_done": entry.moves_done,
        "moves_dropped": entry.moves_dropped,
    }
    return EmitEvent(Kind.OPERATION_ENDED, Stage.REQUESTED, change, details=details)


def _bound(bytes_per_second: int | None) -> str:
    return "none" if bytes_per_second is None else f"{bytes_per_second} bytes/s"
