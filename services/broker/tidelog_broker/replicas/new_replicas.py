"""Which replicas a command creates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.stopped_replicas import StoppedReplicas
from tidelog_broker.replicas.topic_configs import TopicConfigs
from tidelog_runtime.replica_control import PartitionCommand


def new_replicas(
    present: Mapping[TopicPartition, Partition],
    stopped: StoppedReplicas,
    configs: TopicConfigs,
    commands: Iterable[PartitionCommand],
) -> Iterator[tuple[TopicPartition, ReplicaKey]]:
    """Yields the replicas that the commands will create, as far as that is known before.

    Left out are replicas that exist, replicas that were stopped since, and replicas whose
    configuration is rejected.
    """
    for wanted in commands:
        known, topic_id = present.get(wanted.partition), wanted.state.topic_id
        if known is not None and (known.topic_id == topic_id or wanted.revision <= known.revision):
            continue
        key = ReplicaKey(topic_id, wanted.partition.partition)
        is_late = stopped.is_late(key, wanted.revision)
        if not is_late and configs.is_valid(wanted.partition.topic, wanted.config):
            yield wanted.partition, key
