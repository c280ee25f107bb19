"""Compares the replicas on disk after healing byte by byte, below the committed end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from faults.load import now_ms
from tidelog.client.descriptions import TopicDescription
from tidelog.history import ReplicaDigest
from tidelog.model import TopicPartition
from tidelog_runtime.demo.replicas import digest_of_replica, find_replica


def digests(
    data_dirs: Mapping[int, Path],
    topic: TopicDescription,
    ends: Mapping[TopicPartition, int],
) -> list[ReplicaDigest]:
    """The digest of every assigned replica. One that cannot be read to the end has a unique digest,
    and so diverges."""
    found = []
    for partition in topic.partitions:
        end = ends[TopicPartition(topic.name, partition.partition)]
        for broker_id in partition.replicas:
            replica = find_replica(
                data_dirs[broker_id], topic.name, partition.partition, topic.topic_id
            )
            found.append(
                ReplicaDigest(
                    now_ms(),
                    topic.name,
                    partition.partition,
                    broker_id,
                    0,
                    end,
                    _digest(replica, end, broker_id),
                )
            )
    return found


def _digest(replica: Path, end: int, broker_id: int) -> str:
    try:
        reached, digest = digest_of_replica(replica, end)
    except (ValueError, OSError) as error:
        return f"unreadable on broker {broker_id}: {error}"
    if reached != end:
        return f"ends at {reached} on broker {broker_id}"
    return hashlib.blake2b(digest.encode(), digest_size=16).hexdigest()
