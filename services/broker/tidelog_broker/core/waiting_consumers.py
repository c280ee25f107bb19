"""Consumers that get nothing because the record that they fetch is not committed. Pure.

They have no name here: the offset of their fetch identifies them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.inspection.state_reports import WaitingConsumer
from tidelog.model import TopicPartition

MAX_PER_PARTITION = 5
# Beyond this, the partition that was noted first is forgotten.
MAX_PARTITIONS = 1_000
EXPIRY_MS = 10_000


@dataclass(slots=True)
class _Asked:
    fetches: int
    last_ms: int


class WaitingConsumers:
    def __init__(self) -> None:
        self._asked: dict[TopicPartition, dict[int, _Asked]] = {}

    def note(self, name: TopicPartition, offset: int, now_ms: int) -> None:
        """Notes a fetch at that offset that got no records, although there are some."""
        offsets = self._asked.get(name)
        if offsets is None:
            if len(self._asked) >= MAX_PARTITIONS:
                del self._asked[next(iter(self._asked))]
            offsets = self._asked[name] = {}
        asked = offsets.get(offset)
        if asked is None or now_ms - asked.last_ms > EXPIRY_MS:
            offsets.pop(offset, None)
            if len(offsets) >= MAX_PER_PARTITION:
                del offsets[min(offsets, key=lambda at: offsets[at].last_ms)]
            asked = offsets[offset] = _Asked(0, now_ms)
        asked.fetches += 1
        asked.last_ms = now_ms

    def of(self, name: TopicPartition, high_watermark: int, now_ms: int) -> list[WaitingConsumer]:
        """Returns those that still wait, by offset. The others got what was committed meanwhile."""
        offsets = self._asked.get(name, {})
        for offset in [at for at, asked in offsets.items() if now_ms - asked.last_ms > EXPIRY_MS]:
            del offsets[offset]
        if not offsets:
            self._asked.pop(name, None)
        return [
            WaitingConsumer(offset, asked.fetches, now_ms - asked.last_ms)
            for offset, asked in sorted(offsets.items())
            if offset >= high_watermark
        ]
