"""Bounds how often the live leader of one partition is replaced. No I/O.

Time is what `advance` was last given.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import TopicPartition

# The cooldown after a replacement. Each further replacement while the previous one is remembered
# doubles it.
FIRST_COOLDOWN_MS = 5_000
MAX_COOLDOWN_MS = 40_000
MEMORY_MS = 60_000


class _Cooldown(NamedTuple):
    begin_ms: int
    length_ms: int

    @property
    def end_ms(self) -> int:
        return self.begin_ms + self.length_ms


class PartitionCooldowns:
    def __init__(self) -> None:
        self._now_ms = 0
        # The last cooldown of each partition, oldest first, as long as it is remembered.
        self._cooldowns: dict[TopicPartition, _Cooldown] = {}
        self._cooling: set[TopicPartition] = set()

    def __contains__(self, partition: TopicPartition) -> bool:
        """Whether the partition's leader may not be replaced now."""
        return partition in self._cooling

    def __len__(self) -> int:
        """The number of remembered cooldowns."""
        return len(self._cooldowns)

    def advance(self, now_ms: int) -> list[TopicPartition]:
        """Returns the partitions whose cooldown has ended."""
        self._now_ms = now_ms
        over = [p for p in self._cooling if self._cooldowns[p].end_ms <= now_ms]
        self._cooling.difference_update(over)
        self._forget()
        return sorted(over)

    def begin(self, partition: TopicPartition) -> None:
        """Begins a cooldown after the partition's leader was replaced."""
        last = self._cooldowns.pop(partition, None)
        length_ms = FIRST_COOLDOWN_MS
        if last is not None:
            length_ms = min(MAX_COOLDOWN_MS, 2 * last.length_ms)
        self._cooldowns[partition] = _Cooldown(self._now_ms, length_ms)
        self._cooling.add(partition)

    def wake_at_ms(self) -> int | None:
        return min((self._cooldowns[p].end_ms for p in self._cooling), default=None)

    def _forget(self) -> None:
        """Drops old cooldowns; all have ended, because each is shorter than MEMORY_MS."""
        while self._cooldowns:
            oldest = next(iter(self._cooldowns))
            if self._now_ms - self._cooldowns[oldest].begin_ms < MEMORY_MS:
                return
            del self._cooldowns[oldest]
