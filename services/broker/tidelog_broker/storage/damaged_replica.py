"""A replica that a start found damaged."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.replica_key import ReplicaKey


class DamagedReplica(NamedTuple):
    """A replica that is known to have lost data.

    - `name`: None if only its id is known here.
    - `if_synced`: it has lost data only if its topic is `synced`; a crash of the machine may have
      shortened any other.
    - `if_others`: all records are there, but the producers below the log's start are unknown. It
      resigns if other replicas know them.
    - `unless_sole`: only single batches are unreadable, so that a replica without others continues.
    """

    key: ReplicaKey
    name: TopicPartition | None
    reason: str
    if_synced: bool = False
    if_others: bool = False
    unless_sole: bool = False
