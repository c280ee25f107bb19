"""The names of replica directories, in use and set aside."""

from __future__ import annotations

import re
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.replica_key import ReplicaKey

REPLICA_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\.(?P<topic_id>[A-Za-z0-9_-]{22})")
STRAY_NAME = re.compile(REPLICA_NAME.pattern + r"@(?P<since_ms>\d+)(\.\d+)?")


def directory_name(name: TopicPartition, topic_id: str) -> str:
    return f"{name.topic}-{name.partition}.{topic_id}"


class Stray(NamedTuple):
    """A replica directory that was set aside.

    - `since_ms`: wall-clock time at which it was set aside; 0: a command deleted it.
    - `by_former_life`: by a previous process, which may have died before it reported the stray.
    """

    key: ReplicaKey
    name: TopicPartition
    directory: str
    since_ms: int = 0
    by_former_life: bool = False
