"""A partition's metadata, joined with the reports of its replicas' brokers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.cli.health import partition_health
from tidelog.client.descriptions import PartitionDescription
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.model import NOT_KNOWN, FollowerProgress, ReplicaState
from tidelog.inspection.replica_reports import (
    Replicas,
    leader_of,
    progress_of,
    replicas_by_partition,
)
from tidelog_admin_api.bodies.partition_bodies import (
    Partition,
    PartitionLog,
    PartitionWithReplicas,
    Replica,
)

_LEADER, _UNKNOWN = "leader", "unknown"


def partition_of(
    topic: str, described: PartitionDescription, replicas: Replicas | None = None
) -> Partition:
    return Partition(
        topic=topic,
        partition=described.partition,
        health=partition_health(described),
        leader=described.leader,
        leader_epoch=described.leader_epoch,
        replicas=list(described.replicas),
        isr=list(described.isr),
        eligible_leader_replicas=list(described.eligible_leader_replicas),
        offline_replicas=list(described.offline_replicas),
        min_isr=described.min_isr,
        unclean_leader_epoch=described.unclean_leader_epoch,
        moving_operation=described.moving_operation,
        adding_replicas=list(described.adding_replicas),
        leaving_replicas=list(described.leaving_replicas),
        log=_log_of(leader_of(replicas or {})),
    )


def partition_with_replicas(
    topic: str, described: PartitionDescription, told: ReportedStates
) -> PartitionWithReplicas:
    replicas = replicas_by_partition(told.states, topic).get(described.partition, {})
    revisions = [replica.revision for replica in replicas.values()]
    silent = {
        service.id: f"{service} {service.problem}"
        for service in told.silent
        if service.role == "broker"
    }
    leader = leader_of(replicas)
    return PartitionWithReplicas(
        **partition_of(topic, described, replicas).model_dump(),
        revision=max(revisions, default=None),
        details=[
            _replica(broker_id, described, replicas.get(broker_id), leader, silent)
            for broker_id in described.replicas
        ],
    )


def _log_of(leader: ReplicaState | None) -> PartitionLog | None:
    if leader is None or leader.leader is None:
        return None
    followers = leader.leader.followers
    return PartitionLog(
        log_start_offset=leader.log_start_offset,
        high_watermark=leader.high_watermark,
        log_end_offset=leader.log_end_offset,
        size_bytes=leader.size_bytes,
        hw_stalled_ms=_known(leader.leader.hw_stalled_ms),
        max_lag_records=_worst([follower.lag_records for follower in followers]),
        max_lag_ms=_worst([follower.lag_ms for follower in followers]),
    )


def _replica(
    broker_id: int,
    described: PartitionDescription,
    told: ReplicaState | None,
    leader: ReplicaState | None,
    silent: Mapping[int, str],
) -> Replica:
    leads = told is not None and told is leader
    progress = None if leads else progress_of(leader, broker_id)
    preferred = (described.target_replicas or described.replicas)[:1] == (broker_id,)
    moving = "adding" if broker_id in described.adding_replicas else ""
    if broker_id in described.leaving_replicas:
        moving = "leaving"
    return Replica(
        broker_id=broker_id,
        role=told.role if told else _UNKNOWN,
        preferred=preferred,
        in_sync=broker_id in described.isr,
        moving=moving,
        problem=_problem(told, silent.get(broker_id, "its broker does not tell of it")),
        leader_epoch=told.leader_epoch if told else NOT_KNOWN,
        log_start_offset=told.log_start_offset if told else None,
        log_end_offset=told.log_end_offset if told else _end_of(progress),
        high_watermark=told.high_watermark if told else None,
        flushed_offset=told.flushed_offset if told else None,
        size_bytes=told.size_bytes if told else None,
        lag_records=0 if leads else _known(progress.lag_records) if progress else None,
        lag_bytes=0 if leads else _known(progress.lag_bytes) if progress else None,
        lag_ms=0 if leads else _known(progress.lag_ms) if progress else None,
    )


def _end_of(progress: FollowerProgress | None) -> int | None:
    """Returns the follower's log end offset as its leader knows it."""
    return _known(progress.log_end_offset) if progress else None


def _problem(told: ReplicaState | None, silence: str) -> str:
    if told is None:
        return silence
    if told.failure:
        return f"{told.failure}: {told.failure_message}"
    if told.diverged:
        first = told.diverged[0]
        return (
            f"replicas_diverged: broker {first.broker_id} holds other committed records at offsets "
            f"{first.first_offset} to {first.next_offset - 1}"
        )
    return told.follower.problem if told.follower else ""


def _known(figure: int) -> int | None:
    return None if figure == NOT_KNOWN else figure


def _worst(figures: Sequence[int]) -> int | None:
    """Returns the largest figure, 0 if there is none, or None if one of them is unknown."""
    return None if NOT_KNOWN in figures else max(figures, default=0)
