"""The key of a replica on its broker."""

from __future__ import annotations

from typing import NamedTuple


class ReplicaKey(NamedTuple):
    """A partition of one topic, also after the topic's name is used again (KIP-516)."""

    topic_id: str
    partition: int
