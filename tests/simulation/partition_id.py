"""How the rules identify a partition."""

from __future__ import annotations

from typing import NamedTuple


class PartitionId(NamedTuple):
    """A partition of one topic id, and of no other topic that has the name before or after."""

    topic_id: str
    partition: int
