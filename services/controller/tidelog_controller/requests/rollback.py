"""What an operation has changed besides replicas, and how to roll it back.

Pure: reads the context, changes nothing. Used by cancellations and reversals. Only what is still as
the operation left it is rolled back; a later change by another request stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tidelog_controller.state.admin_answers import PlanSummary
from tidelog_controller.state.context import Context
from tidelog_controller.state.metadata_records import Mark
from tidelog_controller.state.mutations import BrokerMarking, TopicRewrite
from tidelog_runtime.metadata.operations import MarkedAs, OperationEntry, OperationKind


def revision_of(mark: Mark | None) -> int:
    return mark.revision if mark is not None else 0


def marking(context: Context, broker_id: int, marked: MarkedAs) -> BrokerMarking:
    """The change of a broker's current marks to `marked`."""
    added, removed = context.added_brokers.get(broker_id), context.removed_brokers.get(broker_id)
    return BrokerMarking(broker_id, marked, revision_of(added), revision_of(removed))


def marked_as(context: Context, broker_id: int) -> MarkedAs:
    if broker_id in context.removed_brokers:
        return MarkedAs.REMOVED
    return MarkedAs.ADDED if broker_id in context.added_brokers else MarkedAs.NOTHING


def marks_to_roll_back(
    context: Context, operation_id: str, entry: OperationEntry
) -> Iterator[BrokerMarking]:
    for broker_id, before in entry.marks_before:
        marks = (context.added_brokers.get(broker_id), context.removed_brokers.get(broker_id))
        if any(mark is not None and mark.entry.operation_id == operation_id for mark in marks):
            yield marking(context, broker_id, MarkedAs(before))


def factors_to_roll_back(context: Context, entry: OperationEntry) -> Iterator[TopicRewrite]:
    """Returns the topics to rewrite with their previous replication factors.

    A topic is left out if its min ISR now requires more replicas than it had.
    """
    given = _factors_given(context, entry)
    for name, topic_id, before in entry.factors_before:
        topic = context.topics.get(name)
        if topic is None or topic.entry.topic_id != topic_id or name in context.deletions:
            continue
        is_as_left = topic.entry.replication_factor == given.get(name)
        if is_as_left and topic.config.min_isr(before) <= before:
            former = replace(topic.entry, replication_factor=before)
            yield TopicRewrite(name, topic.revision, former)


def rollback_texts(marks: Iterable[BrokerMarking], topics: Iterable[TopicRewrite]) -> Iterator[str]:
    """What is rolled back besides moves, as text for people."""
    for broker_id, marked, added_revision, removed_revision in marks:
        if marked is not MarkedAs.NOTHING:
            yield f"broker {broker_id} is marked as {marked.value} again"
        elif added_revision or removed_revision:
            before = MarkedAs.REMOVED if removed_revision else MarkedAs.ADDED
            yield f"broker {broker_id} is not marked as {before.value} any more"
    for topic, _, entry in topics:
        yield f"topic {topic} gets replication factor {entry.replication_factor} again"


def with_rollback(
    plan: PlanSummary, marks: Iterable[BrokerMarking], topics: Iterable[TopicRewrite]
) -> PlanSummary:
    lines = (f"besides the moves, {text}" for text in rollback_texts(marks, topics))
    return plan._replace(warnings=(*plan.warnings, *lines))


def _factors_given(context: Context, entry: OperationEntry) -> Mapping[str, int]:
    """The replication factors that the operation gave to topics.

    A reversal gave them those before the reversed operation, as far as that one is still known.
    """
    request = json.loads(entry.request)
    if entry.kind is OperationKind.SET_REPLICATION_FACTOR:
        return dict.fromkeys(request["topics"], request["replication_factor"])
    if entry.kind is not OperationKind.REVERSAL:
        return {}
    taken_back = context.operations.held.get(request["reversed_operation_id"])
    former = taken_back.entry.factors_before if taken_back else ()
    return {name: before for name, _, before in former}
