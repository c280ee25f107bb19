"""Which partitions should return to their preferred leaders. Pure functions.

Also which replicas lead instead of brokers in maintenance (rule
`leadership-returns-above-threshold`).

Leaders gather on few brokers as others fail and come back. A broker that lacks more than a
threshold of the leaderships that prefer it gets back those that it can have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import NamedTuple

from tidelog.model import NO_LEADER, TopicPartition


class LeaderBalancing(NamedTuple):
    """`threshold_percent`: the part of a broker's preferred leaderships that may be elsewhere."""

    interval_ms: int
    threshold_percent: int


class PartitionLeadership(NamedTuple):
    """The part of a partition's state that concerns its preferred leader.

    - `replicas`: the first is the preferred leader.
    - `isr`: the members whose incarnation is the current one of their broker.
    """

    replicas: tuple[int, ...]
    leader: int
    isr: Collection[int]


def preferred_elections(
    partitions: Mapping[TopicPartition, PartitionLeadership],
    running: Collection[int],
    maintenance: Collection[int],
    threshold_percent: int,
    at_most: int,
    rejecting_disks: Collection[int] = (),
) -> list[TopicPartition]:
    """Returns the partitions to be led by their preferred replicas now.

    Those of the broker that lacks the largest part of its leaderships come first.

    - `maintenance`: brokers in maintenance; they cannot get a leadership back.
    - `threshold_percent`: a broker that lacks no more than this is left alone; with 0 all return
      that can.
    - `at_most`: the maximum number of partitions.
    """
    preferring = dict.fromkeys(sorted({p.replicas[0] for p in partitions.values()}), 0)
    lacking: dict[int, list[TopicPartition]] = {broker: [] for broker in preferring}
    for partition, state in partitions.items():
        preferring[state.replicas[0]] += 1
        if state.leader != state.replicas[0]:
            lacking[state.replicas[0]].append(partition)
    parts = {b: Fraction(len(lacking[b]), count) for b, count in preferring.items()}
    chosen: list[TopicPartition] = []
    for broker in sorted(parts, key=lambda b: (-parts[b], b)):
        if 100 * parts[broker] > threshold_percent:
            chosen += [
                partition
                for partition in sorted(lacking[broker])
                if hindrance(partitions[partition], running, maintenance, rejecting_disks) is None
            ]
    return chosen[:at_most]


def hindrance(
    state: PartitionLeadership,
    running: Collection[int],
    maintenance: Collection[int],
    rejecting_disks: Collection[int] = (),
) -> str | None:
    """Why the preferred replica may not lead now, and the remedy. None: it may, or already does."""
    preferred = state.replicas[0]
    if state.leader == preferred:
        return None
    if state.leader == NO_LEADER:
        return "the partition has no leader; it gets one as soon as a replica can lead"
    if preferred not in running:
        return f"broker {preferred} is not running; start it"
    if preferred in maintenance:
        return f"broker {preferred} is in maintenance; end that first"
    if preferred in rejecting_disks:
        return f"the disk of broker {preferred} rejects writes; free space on it or replace it"
    if preferred not in state.isr:
        return f"the replica on broker {preferred} is not in sync; wait until it has caught up"
    return None


def maintenance_successors(
    partitions: Mapping[TopicPartition, PartitionLeadership],
    running: Collection[int],
    maintenance: Collection[int],
) -> dict[TopicPartition, int | None]:
    """The next leader of each partition that a broker in maintenance leads.

    None: no other replica can lead without loss, and the broker continues to lead.
    """
    return {
        partition: next(
            (b for b in state.replicas if b in state.isr and b in running and b not in maintenance),
            None,
        )
        for partition, state in sorted(partitions.items())
        if state.leader in maintenance
    }
