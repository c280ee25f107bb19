"""Reads offsets, sizes and lags of replicas from a broker's description, and nothing else.

A program that samples thousands of replicas needs a fifth of the fields, and `from_wire` reads all
of them.
"""

from __future__ import annotations

from tidelog.inspection.state_reports import (
    BrokerState,
    FollowerProgress,
    LeaderState,
    ReplicaState,
    ServiceState,
    StoreHealth,
)
from tidelog.v1 import inspect_pb2


def figures_of(answer: inspect_pb2.DescribeServiceResponse) -> ServiceState:
    """Returns a state with these fields; all others have a default:

    - of the service: role, id, address, start time and current time
    - of a broker: `has_full_state`, numbers of replicas and leaders, and free bytes of its disk
    - of its replicas: topic id, partition, leader epoch, start and end of the log, and its size
    - of the followers of a leader: the lag in records
    """
    broker = answer.broker
    # Replicas of one topic share the text of its id.
    ids: dict[str, str] = {}
    return ServiceState(
        role=answer.role,
        id=answer.id,
        address=answer.address,
        version="",
        started_at_ms=answer.started_at_ms,
        now_ms=answer.now_ms,
        store=StoreHealth(),
        broker=BrokerState(
            broker_epoch=broker.broker_epoch,
            state="",
            has_full_state=broker.has_full_state,
            controller_epoch=0,
            replicas=[_replica(each, ids) for each in broker.replicas],
            replica_count=broker.replica_count,
            leader_count=broker.leader_count,
            disk_free_bytes=broker.disk_free_bytes,
        )
        if answer.HasField("broker")
        else None,
    )


def _replica(replica: inspect_pb2.ReplicaState, ids: dict[str, str]) -> ReplicaState:
    topic_id = replica.topic_id
    leader = None
    if replica.HasField("leader"):
        leader = LeaderState(
            followers=[
                FollowerProgress(each.broker_id, lag_records=each.lag_records)
                for each in replica.leader.followers
            ]
        )
    return ReplicaState(
        topic="",
        topic_id=ids.setdefault(topic_id, topic_id),
        partition=replica.partition,
        role="",
        leader_epoch=replica.leader_epoch,
        revision=0,
        log_start_offset=replica.log_start_offset,
        log_end_offset=replica.log_end_offset,
        size_bytes=replica.size_bytes,
        leader=leader,
    )
