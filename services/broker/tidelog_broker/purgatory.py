"""Where requests wait: produces for the high watermark, fetches for data.

Everything is woken by the step that makes the wait pointless; nothing polls.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_broker.partition.partition import Partition

_WaitingProduce = tuple[int, int, "asyncio.Future[None]"]


class Purgatory:
    def __init__(self) -> None:
        self._growth: dict[TopicPartition, set[asyncio.Event]] = {}
        self._commits: dict[TopicPartition, set[asyncio.Event]] = {}
        self._produces: dict[TopicPartition, list[_WaitingProduce]] = {}
        self._ties = count()

    # -- told by partitions --------------------------------------------------------

    def log_grew(self, partition: Partition) -> None:
        for event in self._growth.get(partition.name, ()):
            event.set()

    def high_watermark_moved(self, partition: Partition) -> None:
        for event in self._commits.get(partition.name, ()):
            event.set()
        waiting = self._produces.get(partition.name)
        while waiting and waiting[0][0] <= partition.high_watermark:
            future = heapq.heappop(waiting)[2]
            if not future.done():
                future.set_result(None)
        if not waiting:
            self._produces.pop(partition.name, None)

    def leadership_ended(self, partition: Partition) -> None:
        """A produce that waits may or may not survive in the next epoch: its outcome is
        unknown, whatever the high watermark does later (interleaving 8)."""
        for event in self._growth.get(partition.name, ()):
            event.set()
        for event in self._commits.get(partition.name, ()):
            event.set()
        for _, _, future in self._produces.pop(partition.name, ()):
            if not future.done():
                future.set_exception(
                    TidelogError(
                        ErrorCode.LEADER_CHANGED,
                        f"{partition.name} changed its leader while the append waited for its "
                        "replicas; whether it was kept is not known",
                    )
                )

    # -- waited for by requests ----------------------------------------------------

    @contextmanager
    def growth(self, names: Iterable[TopicPartition]) -> Iterator[asyncio.Event]:
        """An event that is set when any of these logs grows or loses its leadership."""
        with _registered(self._growth, names) as event:
            yield event

    @contextmanager
    def commits(self, names: Iterable[TopicPartition]) -> Iterator[asyncio.Event]:
        """An event that is set when any of these high watermarks moves, or its leadership
        ends."""
        with _registered(self._commits, names) as event:
            yield event

    def committed(self, partition: Partition, next_offset: int) -> asyncio.Future[None]:
        """Done when the high watermark has reached `next_offset` in this epoch; fails with
        LEADER_CHANGED when the epoch ends first."""
        future = asyncio.get_running_loop().create_future()
        if partition.high_watermark >= next_offset:
            future.set_result(None)
        else:
            waiting = self._produces.setdefault(partition.name, [])
            heapq.heappush(waiting, (next_offset, next(self._ties), future))
        return future


@contextmanager
def _registered(
    waiters: dict[TopicPartition, set[asyncio.Event]], names: Iterable[TopicPartition]
) -> Iterator[asyncio.Event]:
    event = asyncio.Event()
    names = tuple(names)
    for name in names:
        waiters.setdefault(name, set()).add(event)
    try:
        yield event
    finally:
        for name in names:
            events = waiters[name]
            events.discard(event)
            if not events:
                del waiters[name]
