"""How many replicas a broker may hold: its full state, which names all of them, is one message.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import MAX_REPLICAS_PER_BROKER


def may_exceed(most: int, partitions: int) -> bool:
    """Whether it is worth finding out where partitions would be placed. `most`: replicas of the
    broker that holds most of all."""
    return most + partitions > MAX_REPLICAS_PER_BROKER


def check_added(held_by: Callable[[int], int], assignment: Iterable[Sequence[int]]) -> None:
    """`held_by`: how many replicas a broker has. `assignment`: the brokers of each partition that
    is to come. Raises NOT_ENOUGH_BROKERS."""
    added = Counter(broker_id for replicas in assignment for broker_id in replicas)
    for broker_id, count in sorted(added.items()):
        check_count(broker_id, held_by(broker_id), held_by(broker_id) + count)


def check_count(broker_id: int, before: int, after: int) -> None:
    """Raises NOT_ENOUGH_BROKERS where a broker would get more than it may hold."""
    if after > max(before, MAX_REPLICAS_PER_BROKER):
        raise TidelogError(
            ErrorCode.NOT_ENOUGH_BROKERS,
            f"broker {broker_id} holds {before} replicas and would hold {after}; a broker holds at "
            f"most {MAX_REPLICAS_PER_BROKER}: add brokers, or ask for fewer partitions or replicas",
        )
