"""How the rules name a partition."""

from __future__ import annotations

from typing import NamedTuple


class PartitionId(NamedTuple):
    """A partition of one topic, and of no other that has the name before or after."""

    topic_id: str
    partition: int
