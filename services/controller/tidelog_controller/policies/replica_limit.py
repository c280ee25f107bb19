"""The limit on replicas of a broker. Pure functions.

A broker's full state names all of its replicas in one message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import MAX_REPLICAS_PER_BROKER


def may_exceed(most: int, partitions: int) -> bool:
    """Whether the placement has to be computed to check the limit.

    `most`: the replicas of the broker that holds most.
    """
    return most + partitions > MAX_REPLICAS_PER_BROKER


def check_added(held_by: Callable[[int], int], assignment: Iterable[Sequence[int]]) -> None:
    """Raises NOT_ENOUGH_BROKERS if a broker would hold too many replicas.

    - `held_by`: returns how many replicas a broker has.
    - `assignment`: the brokers of each new partition.
    """
    added = Counter(broker_id for replicas in assignment for broker_id in replicas)
    for broker_id, count in sorted(added.items()):
        check_count(broker_id, held_by(broker_id), held_by(broker_id) + count)


def check_count(broker_id: int, before: int, after: int) -> None:
    """Raises NOT_ENOUGH_BROKERS if a broker would get more replicas than it may hold."""
    if after > max(before, MAX_REPLICAS_PER_BROKER):
        raise TidelogError(
            ErrorCode.NOT_ENOUGH_BROKERS,
            f"broker {broker_id} holds {before} replicas and would hold {after}; a broker holds "
            f"at most {MAX_REPLICAS_PER_BROKER}: add brokers, or request fewer partitions or "
            "replicas",
        )
