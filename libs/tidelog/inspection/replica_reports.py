"""Replicas of a topic as their brokers report them. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.inspection.model import FollowerProgress, ReplicaState, ServiceState

# The replicas of a partition, by broker id.
Replicas = Mapping[int, ReplicaState]


def replicas_by_partition(states: Iterable[ServiceState], topic: str) -> Mapping[int, Replicas]:
    """Returns the replicas that brokers report, by partition of the topic."""
    found: dict[int, dict[int, ReplicaState]] = {}
    for state in states:
        for replica in state.broker.replicas if state.broker else ():
            if replica.topic == topic:
                found.setdefault(replica.partition, {})[state.id] = replica
    return found


def leader_of(replicas: Replicas) -> ReplicaState | None:
    """Returns the replica that leads. If several claim to, it is the one in the newest epoch: the
    others have not received that epoch yet."""
    leading = [replica for replica in replicas.values() if replica.leader is not None]
    return max(leading, key=lambda replica: replica.leader_epoch, default=None)


def progress_of(leader: ReplicaState | None, broker_id: int) -> FollowerProgress | None:
    """Returns what the leader reports about a follower."""
    followers = leader.leader.followers if leader and leader.leader else ()
    return next((f for f in followers if f.broker_id == broker_id), None)
