"""The summary of a replica for the controller, and the key of a command's replica. Pure."""

from __future__ import annotations

from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_runtime.replica_control import PartitionCommand, ReplicaSummary


def key_of(command: PartitionCommand) -> ReplicaKey:
    return ReplicaKey(command.state.topic_id, command.partition.partition)


def summary_of(partition: Partition) -> ReplicaSummary:
    log = partition.log
    return ReplicaSummary(
        partition.topic_id,
        partition.name.partition,
        partition.revision,
        log.log_start_offset,
        log.log_end_offset,
        tuple((epoch, start) for epoch, start in log.leader_epochs),
        partition.before_cut,
        partition.high_watermark,
        log.bytes_from(log.log_start_offset),
        partition.bytes_lacking(),
    )
