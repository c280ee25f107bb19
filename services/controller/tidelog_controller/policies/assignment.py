"""Checks of replicas that an administrator chose. Pure functions.

Every rejection is a `TidelogError` that says what would be valid. Shared racks are reported but
never rejected: the administrator may have a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tidelog.errors import ErrorCode, TidelogError
from tidelog_controller.policies.racks import RackedBroker, rack_numbers


def check_assignment(
    topic: str,
    assignment: Mapping[int, Sequence[int]],
    known: Collection[int],
    replication_factor: int | None = None,
) -> None:
    """Raises INVALID_ASSIGNMENT or UNKNOWN_BROKER if the assignment is invalid.

    - `assignment`: replicas by partition, for all or some partitions of the topic.
    - `known`: brokers that may hold replicas.
    - `replication_factor`: that of the topic, if partitions outside `assignment` keep theirs.
    """
    if not assignment:
        raise _invalid(f"no replicas are named for topic {topic}; name those of each partition")
    first, expected = -1, replication_factor
    for partition, replicas in sorted(assignment.items()):
        name = f"partition {partition} of topic {topic}"
        if not replicas:
            raise _invalid(f"{name} has no replicas; name at least one broker")
        repeated = sorted(b for b in dict.fromkeys(replicas) if replicas.count(b) > 1)
        if repeated:
            raise _invalid(
                f"{name} names broker {repeated[0]} {replicas.count(repeated[0])} times; a broker "
                "holds one replica of a partition at most, so name each once"
            )
        unknown = [broker for broker in replicas if broker not in known]
        if unknown:
            raise TidelogError(
                ErrorCode.UNKNOWN_BROKER,
                f"{name} names broker {unknown[0]}, which cannot hold replicas now; those that "
                f"can are {_listed(known)}",
            )
        if expected is None:
            first, expected = partition, len(replicas)
        elif len(replicas) != expected:
            others = "the topic has" if first < 0 else f"partition {first} has"
            raise _invalid(
                f"{name} has {len(replicas)} replicas and {others} {expected}; all partitions of a "
                "topic must have the same number"
            )


def sharing_a_rack(
    assignment: Mapping[int, Sequence[int]], brokers: Sequence[RackedBroker]
) -> list[int]:
    """The partitions with two replicas in one rack while another rack has none of them."""
    ids = (broker.broker_id for broker in brokers)
    rack_of = dict(zip(ids, rack_numbers(brokers), strict=True))
    racks = len(set(rack_of.values()))
    sharing = []
    for partition, replicas in sorted(assignment.items()):
        used = [rack_of[broker] for broker in replicas if broker in rack_of]
        if len(set(used)) < len(used) and len(set(used)) < racks:
            sharing.append(partition)
    return sharing


def _invalid(message: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_ASSIGNMENT, message)


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(str(broker) for broker in sorted(brokers)) or "none"
