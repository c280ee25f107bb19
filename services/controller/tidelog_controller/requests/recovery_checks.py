"""Checks of chosen leaders, for recoveries and their descriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidelog.admin_messages import RecoveryChoice
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.requests.topic_checks import check_revision
from tidelog_controller.state.context import Context


def check_choices(context: Context, topic: str, choices: Sequence[RecoveryChoice]) -> None:
    """Checks choices for existing partitions. Raises the `TidelogError` of the reply."""
    chosen = Counter(choice.partition for choice in choices)
    for choice in choices:
        name = TopicPartition(topic, choice.partition)
        if chosen[choice.partition] > 1:
            raise _invalid(f"{name} is named twice; name each partition once")
        _check_choice(context, name, choice)


def _check_choice(context: Context, name: TopicPartition, choice: RecoveryChoice) -> None:
    held = context.partition(name)
    if held is not None and held.state.leader == choice.broker_id:
        return  # It leads already: a repeated request succeeds after a lost answer.
    if held is None or held.state.leader != NO_LEADER:
        raise _invalid(f"{name} has a leader, or has not been led yet: there is nothing to recover")
    if choice.broker_id not in held.state.replicas:
        raise _invalid(
            f"broker {choice.broker_id} holds no replica of {name}; those that do: "
            f"{list(held.state.replicas)}"
        )
    check_revision(str(name), held.revision, choice.expected_revision)


def _invalid(problem: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_REQUEST, problem)
