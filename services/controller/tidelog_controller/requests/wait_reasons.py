"""What a stalled operation waits for, as text for people.

Pure: reads the context, changes nothing. Copying that makes progress is no reason; the operation's
progress shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tidelog.model import TopicPartition
from tidelog_controller.policies.electability import is_running
from tidelog_controller.policies.leader_election import is_leader_serving
from tidelog_controller.policies.reassignment import missing_for_cancellation, missing_for_switch
from tidelog_controller.requests.plan_queue import on_removed
from tidelog_controller.state.context import Context
from tidelog_controller.state.operation_registry import Hindrance
from tidelog_runtime.metadata.operations import OperationEntry, OperationState
from tidelog_runtime.metadata.schema import LeaderAndIsr

_Active = Sequence[tuple[TopicPartition, LeaderAndIsr]]


def wait_reason(context: Context, operation_id: str) -> str:
    """Why the operation ended as it did, or what it waits for; empty: neither."""
    entry = context.operations.held[operation_id].entry
    work = context.operations.work_of(operation_id)
    if work is None:
        return entry.reason
    states = ((name, context.state_to_stay(name)) for name in work.active)
    active = [(name, state) for name, state in states if state is not None]
    parts = [*_without_leader(context, active)]
    if entry.state is OperationState.CANCELLING:
        parts += _missing_to_roll_back(context, active)
    else:
        hindered = context.operations.hindered(operation_id)[Hindrance.NOT_READY]
        parts += _missing_to_continue(context, active, hindered)
        if work.is_over:
            parts += _on_brokers(context, operation_id, entry)
    waits = f"waits for {', and for '.join(parts)}" if parts else ""
    return "; ".join(part for part in (entry.reason, waits) if part)


def _without_leader(context: Context, active: _Active) -> Iterator[str]:
    names = [name for name, state in active if not is_leader_serving(state, context.live)]
    if names:
        yield f"{_named(names)} to have a leader"


def _missing_to_continue(
    context: Context, active: _Active, hindered: Collection[int]
) -> Iterator[str]:
    missing = {b for _, state in active for b in missing_for_switch(state, context.live)}
    away = {b for b in missing if not is_running(b, context.live)}
    brokers = sorted({*away, *hindered})
    if brokers:
        yield f"{_brokers(brokers)} to run and to accept commands of the controller"


def _missing_to_roll_back(context: Context, active: _Active) -> Iterator[str]:
    """Too few of a partition's original replicas are in sync to keep what is committed."""
    waiting: dict[TopicPartition, tuple[int, ...]] = {}
    for name, state in active:
        topic = context.topics.get(name.topic)
        if topic is None or state.moving is None:
            continue
        min_isr = topic.config.min_isr(len(state.moving.original))
        missing = missing_for_cancellation(state, context.live, min_isr)
        if missing:
            waiting[name] = missing
    if waiting:
        brokers = sorted({b for missing in waiting.values() for b in missing})
        yield f"{_brokers(brokers)} to be in sync again with {_named(list(waiting))}"


def _on_brokers(context: Context, operation_id: str, entry: OperationEntry) -> Iterator[str]:
    leaving = on_removed(context, operation_id, entry).leaving
    if leaving:
        yield f"{_named(leaving)} to be moved off its brokers by other operations"


def _named(names: Sequence[TopicPartition]) -> str:
    first = min(names)
    more = len(names) - 1
    return f"{first} and {more} more" if more else str(first)


def _brokers(broker_ids: Sequence[int]) -> str:
    if len(broker_ids) == 1:
        return f"broker {broker_ids[0]}"
    return f"brokers {', '.join(str(b) for b in broker_ids)}"
