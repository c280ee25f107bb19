"""Replicas of a topic as their brokers report them. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.inspection.state_reports import (
    NOT_KNOWN,
    FollowerProgress,
    ReplicaState,
    ServiceState,
)

_UNKNOWN_ROLE = "unknown"

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


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """The log of a replica. None: no broker reports it. Lags are measured by the leader; the
    leader's own are 0."""

    partition: int
    broker_id: int
    role: str
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    size_bytes: int | None
    lag_records: int | None
    lag_ms: int | None


def log_of(partition: int, broker_id: int, replicas: Replicas) -> ReplicaLog:
    leader = leader_of(replicas)
    reported, progress = replicas.get(broker_id), progress_of(leader, broker_id)
    leads = reported is not None and reported is leader
    followed = known(progress.log_end_offset) if progress else None
    return ReplicaLog(
        partition,
        broker_id,
        reported.role if reported else _UNKNOWN_ROLE,
        reported.log_start_offset if reported else None,
        reported.high_watermark if reported else None,
        reported.log_end_offset if reported else followed,
        reported.size_bytes if reported else None,
        0 if leads else known(progress.lag_records) if progress else None,
        0 if leads else known(progress.lag_ms) if progress else None,
    )


def known(value: int) -> int | None:
    return None if value == NOT_KNOWN else value
