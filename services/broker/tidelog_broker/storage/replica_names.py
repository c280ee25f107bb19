"""How the directories of replicas are named, in use and set aside."""

from __future__ import annotations

import re
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_broker.partition.replica_key import ReplicaKey

REPLICA_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\.(?P<topic_id>[A-Za-z0-9_-]{22})")
STRAY_NAME = re.compile(REPLICA_NAME.pattern + r"@(?P<since_ms>\d+)(\.\d+)?")


def directory_name(name: TopicPartition, topic_id: str) -> str:
    return f"{name.topic}-{name.partition}.{topic_id}"


class Stray(NamedTuple):
    """`since_ms`: wall clock, when it was set aside; 0: it was deleted by a command.
    `by_former_life`: which may have died before it told."""

    key: ReplicaKey
    name: TopicPartition
    directory: str
    since_ms: int = 0
    by_former_life: bool = False
