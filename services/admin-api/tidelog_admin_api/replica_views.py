"""A partition's metadata, joined with the reports of its replicas' brokers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.cli.partition_health import partition_health
from tidelog.client.descriptions import PartitionDescription
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.replica_reports import (
    Replicas,
    known,
    leader_of,
    log_of,
    progress_of,
    replicas_by_partition,
)
from tidelog.inspection.state_reports import NOT_KNOWN, ReplicaState
from tidelog_admin_api.bodies.partition_bodies import (
    Partition,
    PartitionLog,
    PartitionWithReplicas,
    Replica,
)


def partition_of(
    topic: str, described: PartitionDescription, replicas: Replicas | None = None
) -> Partition:
    return Partition.of(
        described,
        topic=topic,
        health=partition_health(described),
        log=_log_of(leader_of(replicas or {})),
    )


def partition_with_replicas(
    topic: str, described: PartitionDescription, reported: ReportedStates
) -> PartitionWithReplicas:
    replicas = replicas_by_partition(reported.states, topic).get(described.partition, {})
    revisions = [replica.revision for replica in replicas.values()]
    silent = {
        service.id: f"{service} {service.problem}"
        for service in reported.silent
        if service.role == "broker"
    }
    return PartitionWithReplicas.of(
        partition_of(topic, described, replicas),
        revision=max(revisions, default=None),
        details=[
            _replica(broker_id, described, replicas, silent) for broker_id in described.replicas
        ],
    )


def _log_of(leader: ReplicaState | None) -> PartitionLog | None:
    if leader is None or leader.leader is None:
        return None
    followers = leader.leader.followers
    return PartitionLog.of(
        leader,
        hw_stalled_ms=known(leader.leader.hw_stalled_ms),
        max_lag_records=_worst([follower.lag_records for follower in followers]),
        max_lag_ms=_worst([follower.lag_ms for follower in followers]),
    )


def _replica(
    broker_id: int,
    described: PartitionDescription,
    replicas: Replicas,
    silent: Mapping[int, str],
) -> Replica:
    reported, leader = replicas.get(broker_id), leader_of(replicas)
    leads = reported is not None and reported is leader
    progress = progress_of(leader, broker_id)
    moving = "adding" if broker_id in described.adding_replicas else ""
    if broker_id in described.leaving_replicas:
        moving = "leaving"
    return Replica.of(
        log_of(described.partition, broker_id, replicas),
        preferred=(described.target_replicas or described.replicas)[:1] == (broker_id,),
        in_sync=broker_id in described.isr,
        moving=moving,
        problem=_problem(reported, silent.get(broker_id, "its broker does not report it")),
        leader_epoch=reported.leader_epoch if reported else NOT_KNOWN,
        flushed_offset=reported.flushed_offset if reported else None,
        lag_bytes=0 if leads else known(progress.lag_bytes) if progress else None,
    )


def _problem(reported: ReplicaState | None, silence: str) -> str:
    if reported is None:
        return silence
    if reported.failure:
        return f"{reported.failure}: {reported.failure_message}"
    if reported.diverged:
        first = reported.diverged[0]
        return (
            f"replicas_diverged: broker {first.broker_id} holds other committed records at offsets "
            f"{first.first_offset} to {first.next_offset - 1}"
        )
    return reported.follower.problem if reported.follower else ""


def _worst(lags: Sequence[int]) -> int | None:
    """Returns the largest lag, 0 if there is none, or None if one of them is unknown."""
    return None if NOT_KNOWN in lags else max(lags, default=0)
