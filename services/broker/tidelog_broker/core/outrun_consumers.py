"""Consumers that fetch records which retention has deleted already. Bounded; no I/O.

A consumer that does so repeatedly reads more slowly than the log's start moves.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.errors import ErrorCode
from tidelog.inspection.state_reports import RejectedRequests
from tidelog.model import TopicPartition

# Retention deletes every retention_check_interval_ms, by default half a minute.
WINDOW_MS = 300_000
# Beyond this, the partition that was noted the longest ago is forgotten.
MAX_PARTITIONS = 200
# Upper bound of the count of one partition within the window.
MAX_COUNTED = 100


@dataclass(slots=True)
class _Outrun:
    times: deque[int]
    offset: int
    message: str


class OutrunConsumers:
    def __init__(self) -> None:
        self._kept: OrderedDict[TopicPartition, _Outrun] = OrderedDict()

    def note(self, name: TopicPartition, offset: int, message: str, now_ms: int) -> None:
        """Notes a fetch at this offset that failed with this error, because the log starts later.

        A fetch that is repeated at the same offset counts once: its client does not move on.
        """
        found = self._kept.get(name)
        if found is not None and found.offset == offset:
            return
        if found is None:
            found = self._kept[name] = _Outrun(deque(maxlen=MAX_COUNTED), offset, message)
            if len(self._kept) > MAX_PARTITIONS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(name)
        found.times.append(now_ms)
        found.offset, found.message = offset, message

    def recent(self, now_ms: int) -> Iterator[RejectedRequests]:
        """Yields for each topic the partition with the most such fetches within WINDOW_MS.

        Only that one counts: readers that start from scratch fail once in many partitions.
        """
        worst: dict[str, RejectedRequests] = {}
        for name, found in sorted(self._kept.items()):
            count = sum(at_ms > now_ms - WINDOW_MS for at_ms in found.times)
            known = worst.get(name.topic)
            if count and (known is None or count > known.count):
                worst[name.topic] = RejectedRequests(
                    name.topic,
                    ErrorCode.OFFSET_OUT_OF_RANGE.name,
                    count,
                    now_ms - found.times[-1],
                    found.message,
                )
        yield from worst.values()
