"""Which brokers hold the replicas of a new partition. Pure.

Leaders go round the brokers. The other replicas of a broker's partitions lie at a
distance that grows from round to round, so that all survivors share the load of a
dead broker (section 4 of ARCHITECTURE.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence


def start_of(topic_id: str) -> int:
    """Where a topic's placement starts, so that topics do not all start at the first
    broker. Follows from the id alone: a controller that takes over in the middle of a
    creation goes on in the same pattern."""
    return zlib.crc32(topic_id.encode())


def place(
    partition: int, replication_factor: int, brokers: Sequence[int], start: int
) -> tuple[int, ...]:
    """The replicas of one partition; the first is the preferred leader.

    `brokers`: distinct and in the same order for all partitions of a topic; at least
    as many as the replication factor (ValueError otherwise)."""
    count = len(brokers)
    if not 1 <= replication_factor <= count:
        raise ValueError(
            f"cannot place {replication_factor} replicas on {count} brokers; "
            f"the replication factor has to be between 1 and {count}"
        )
    first = (partition + start) % count
    # Counted from the topic's first partition, and not from the first broker: a round
    # has one distance, and so every broker gets equally many replicas of it.
    round_number = partition // count + start // count
    replicas = [brokers[first]]
    for follower in range(replication_factor - 1):
        distance = 1 + (round_number + follower) % (count - 1)
        replicas.append(brokers[(first + distance) % count])
    return tuple(replicas)
