"""Chooses the partition of a record.

A key's partition is CRC32C(key) modulo the number of partitions: the same in every process, every
release, and every language that has a CRC32C. (It is not the murmur2 of other systems, so records
with keys have other partitions there.) Records without a key go to one partition until a batch is
full or has lingered, which makes few large batches of many small records.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence

from crc32c import crc32c

from tidelog.client.metadata_cache import KnownTopic
from tidelog.model import NO_LEADER


def partition_for_key(key: bytes, partitions: int) -> int:
    """
    >>> partition_for_key(b"tide", 6) == partition_for_key(b"tide", 6)
    True
    """
    return int(crc32c(key)) % partitions


def usable_partitions(topic: KnownTopic) -> Sequence[int]:
    """Returns the partitions that have a leader; all of them if none has."""
    led = [p for p, leader in enumerate(topic.leaders) if leader.broker_id != NO_LEADER]
    return led or range(topic.partitions)


class StickyPartitioner:
    """The current partition of each topic for records without a key."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._current: dict[str, int] = {}

    def current(self, topic: str) -> int | None:
        """Returns the current partition; None: none was chosen yet."""
        return self._current.get(topic)

    def move(self, topic: str, usable: Sequence[int]) -> int:
        """Returns the next of `usable` (partitions that have a leader; ascending, not empty). They
        take turns from a random start, so all get the same share."""
        partition = self._current.get(topic)
        if partition is None:
            chosen = self._rng.choice(usable)
        else:
            following = bisect_right(usable, partition)
            chosen = usable[following] if following < len(usable) else usable[0]
        self._current[topic] = chosen
        return chosen

    def forget_removed(self, exists: Callable[[str], object]) -> None:
        """Forgets topics for which `exists` returns nothing."""
        for topic in [topic for topic in self._current if not exists(topic)]:
            del self._current[topic]
