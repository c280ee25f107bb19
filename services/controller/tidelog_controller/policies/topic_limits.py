"""Limits on a topic's partitions, replicas and configuration. Pure functions.

Every rejection is a `TidelogError` that says what would be valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidelog.errors import ErrorCode, TidelogError
from tidelog_runtime.metadata.schema import TopicEntry
from tidelog_runtime.topic_config import TopicConfig

# A broker's full state names all its partitions in one message of 64 MiB, at about 200 bytes each.
MAX_PARTITIONS_PER_TOPIC = 100_000


def check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS_PER_TOPIC:
        raise TidelogError(
            ErrorCode.INVALID_PARTITION_COUNT,
            f"{partitions} partitions are requested; a topic has 1 to {MAX_PARTITIONS_PER_TOPIC}",
        )


def check_replication_factor(
    replication_factor: int, taking: int, removed: Sequence[int] = ()
) -> None:
    """Raises INVALID_REPLICATION_FACTOR if there are not enough brokers.

    - `taking`: the number of running brokers that take new replicas.
    - `removed`: the running brokers that take none.
    """
    if 1 <= replication_factor <= taking:
        return
    brokers = "1 broker" if taking == 1 else f"{taking} brokers"
    if removed:
        verb = "takes" if taking == 1 else "take"
        there = f"{brokers} {verb} new replicas, since {list(removed)} were removed"
        remedy = f"add {list(removed)} again, or start more brokers"
        if taking:
            remedy = f"request 1 to {taking}, {remedy}"
    else:
        there = f"{brokers} {'is' if taking == 1 else 'are'} running"
        remedy = f"request 1 to {taking}, or start more brokers"
        if not taking:
            remedy = "start a broker first"
    raise TidelogError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"replication factor {replication_factor} is requested, but {there}; {remedy}",
    )


def check_config(config: Mapping[str, str], replication_factor: int) -> None:
    min_isr = TopicConfig.parse(config).min_isr(replication_factor)
    if min_isr > replication_factor:
        raise TidelogError(
            ErrorCode.INVALID_CONFIG,
            f"min_insync_replicas is {min_isr} and the replication factor {replication_factor}: "
            f"no acks=all write would ever succeed; set it to at most {replication_factor}",
        )


def check_config_change(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG if `after` may not follow `before`; each is already valid by itself."""
    was = TopicConfig.parse_stored(before).durability
    becomes = TopicConfig.parse(after).durability
    if (was, becomes) == ("replicated", "synced"):
        # A member that lost power before it synced acknowledged records would be elected as intact.
        raise TidelogError(
            ErrorCode.INVALID_CONFIG,
            "a topic that was created as durability=replicated cannot become synced: its replicas "
            "may have acknowledged records that they have not synced; create a synced topic and "
            "copy the records",
        )


def with_first_epoch_above(entry: TopicEntry, removed: Iterable[int]) -> TopicEntry:
    """Returns the topic with a first leader epoch beyond those of the `removed` partitions.

    It never decreases, because it is all that is left of partitions that were removed before.
    """
    first = max((epoch + 1 for epoch in removed), default=0)
    if first <= entry.first_leader_epoch:
        return entry
    return replace(entry, first_leader_epoch=first)
