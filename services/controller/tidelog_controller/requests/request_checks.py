"""Checks of administrators' requests, and their timeouts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog.admin_messages import RecoveryChoice
from tidelog.errors import ErrorCode, TidelogError, unknown_partition, unknown_topic
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.policies.topic_limits import check_replication_factor
from tidelog_controller.state.context import Context
from tidelog_controller.state.metadata_records import Topic

DEFAULT_TIMEOUT_MS = 30_000


def request_timeout_ms(asked_ms: int) -> int:
    """Returns the timeout of a request, which was checked on receipt; 0: the default."""
    return asked_ms or DEFAULT_TIMEOUT_MS


def known_topic(context: Context, topic: str, topic_id: str = "") -> Topic:
    """Returns a topic that is not being deleted. Raises the `TidelogError` of the reply."""
    if topic in context.deletions or context.keys.topic_deletion(topic) in context.malformed:
        raise being_deleted(topic)
    known = context.topics.get(topic)
    if known is None:
        raise unknown_topic(topic)
    if topic_id and topic_id != known.entry.topic_id:
        raise other_id(topic, known.entry.topic_id, topic_id)
    if context.keys.topic(topic) in context.malformed:
        raise TidelogError(
            ErrorCode.INTERNAL,
            f"the metadata of topic {topic} cannot be read; repair the key "
            f"{context.keys.topic(topic)} first",
        )
    return known


def is_growing(context: Context, topic: str) -> bool:
    """Whether partitions lack replicas, or the intent to add some still exists.

    Until then another change of their number is rejected.
    """
    return topic in context.additions or context.unplaced.count(topic) > 0


def created_by(context: Context, operation_id: str) -> str | None:
    """The topic that the operation id created."""
    if not operation_id:
        return None
    topics = context.topics.items()
    return next((name for name, t in topics if t.entry.operation_id == operation_id), None)


def check_factor(context: Context, replication_factor: int) -> None:
    """Raises INVALID_REPLICATION_FACTOR if a new partition cannot have this many replicas."""
    removed = [b for b in context.running_brokers() if b in context.removed_brokers]
    check_replication_factor(replication_factor, len(context.placement_brokers()), removed)


def check_revision(what: str, revision: int, expected: int) -> None:
    """Raises REVISION_CONFLICT unless `expected` is the revision, or 0."""
    if expected and expected != revision:
        raise TidelogError(
            ErrorCode.REVISION_CONFLICT,
            f"{what} is at revision {revision} and no longer at {expected}: it was changed by "
            "another request; describe it, and repeat the request with the new revision",
        )


def pending_brokers(controls: Mapping[int, BrokerControl], topic: str) -> tuple[int, ...]:
    """Live brokers that have not acknowledged everything for the topic."""
    return tuple(sorted(b for b, control in controls.items() if control.waits_for_topic(topic)))


def unstarted_brokers(
    context: Context, controls: Mapping[int, BrokerControl], topic: str
) -> tuple[int, ...]:
    """Brokers that have not acknowledged the start of their replicas, and failed replica holders.

    The latter start their replicas when they return.
    """
    held = context.held_of(topic).values()
    dead = {b for p in held for b in p.state.replicas if b not in controls}
    return tuple(sorted(dead.union(pending_brokers(controls, topic))))


def no_such_partition(name: TopicPartition, topic: Topic) -> TidelogError:
    """The error for a partition that does not exist or has no replicas yet."""
    if not 0 <= name.partition < topic.entry.partitions:
        return unknown_partition(name.topic, name.partition, topic.entry.partitions)
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"partition {name.partition} of topic {name.topic!r} has no replicas yet; try again later",
    )


def other_id(topic: str, topic_id: str, asked: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"topic {topic} has the id {topic_id}, not {asked}: it was deleted and created again; "
        "describe it, and repeat the request with the new id",
    )


def being_deleted(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.TOPIC_BEING_DELETED,
        f"topic {topic} is being deleted; try again when it is deleted",
    )


def maybe_done(error: TidelogError, *, begun: bool) -> TidelogError:
    """Returns the error of a waiting request. `begun`: it has begun to write, so that it may have
    been carried out."""
    error.outcome_unknown |= begun
    return error


def outcome_unknown(what: str) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the metadata store did not answer in time; whether {what} is visible once it answers",
    )


def unplaced_partitions(topic: str, unplaced: int, partitions: int, factor: int) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"topic {topic} is created, and {unplaced} of its {partitions} partitions have no "
        f"replicas yet; they get them as soon as {factor} brokers are running and the metadata "
        "store answers",
    )


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
        raise _invalid(f"{name} has a leader, or never had one: there is nothing to recover")
    if choice.broker_id not in held.state.replicas:
        raise _invalid(
            f"broker {choice.broker_id} holds no replica of {name}; those that do: "
            f"{list(held.state.replicas)}"
        )
    check_revision(str(name), held.revision, choice.expected_revision)


def _invalid(problem: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_REQUEST, problem)


MAX_OPERATION_ID_LENGTH = 64

_FORM = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_OPERATION_ID_LENGTH}}}")


def check_operation_id(operation_id: str) -> None:
    if not _FORM.fullmatch(operation_id):
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the operation id {operation_id[:80]!r} is invalid; use 1 to "
            f"{MAX_OPERATION_ID_LENGTH} of the characters a-z, A-Z, 0-9, '_' and '-'",
        )
