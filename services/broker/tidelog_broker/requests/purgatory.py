"""Where requests wait: produces for the high watermark or the disk, consumers for data.

It also passes events of partitions to the sessions of followers. Every wait ends with the event
that makes it pointless; nothing polls.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeAlias

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks, TopicPartition
from tidelog_broker.partition.listener import ReplicaWatch
from tidelog_broker.partition.partition import Partition

# None: committed, or synced. An error: it is not known whether it will be.
Committed: TypeAlias = "asyncio.Future[TidelogError | None]"


class _WaitingProduces:
    """Produces of one partition that wait for the same condition, by the offset to reach.

    A produce that gives up stays in the heap until half of the heap has given up. The heap is
    cleaned then: otherwise a stalled high watermark (the store is unavailable, a follower is dead)
    would collect every produce that timed out.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Committed]] = []
        self._ties = count()
        self._given_up = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, next_offset: int, future: Committed) -> None:
        heapq.heappush(self._heap, (next_offset, next(self._ties), future))

    def give_up(self, future: Committed, why: TidelogError) -> None:
        """Ends the wait of a produce.

        A future that its own waiter has cancelled is still in the heap.
        """
        if not future.done():
            future.set_result(why)
        elif not future.cancelled():
            return
        self._given_up += 1
        if self._given_up * 2 > len(self._heap):
            self._heap = [waiting for waiting in self._heap if not waiting[2].done()]
            heapq.heapify(self._heap)
            self._given_up = 0

    def reached(self, offset: int) -> None:
        while self._heap and self._heap[0][0] <= offset:
            future = heapq.heappop(self._heap)[2]
            if future.done():
                self._given_up -= 1
            else:
                future.set_result(None)

    def end(self, error: TidelogError) -> None:
        for _, _, future in self._heap:
            if not future.done():
                future.set_result(error)


class Purgatory:
    def __init__(self) -> None:
        self._watches: dict[Partition, dict[ReplicaWatch, None]] = {}
        self._commits: dict[TopicPartition, dict[asyncio.Event, None]] = {}
        # With acks=all they wait for the high watermark, with acks=1 for the leader's disk.
        self._produces: dict[tuple[TopicPartition, Acks], _WaitingProduces] = {}

    def __len__(self) -> int:
        """The number of entries for waiting requests; 0: none waits."""
        return self.waiting_produces + len(self._watches) + len(self._commits)

    @property
    def waiting_produces(self) -> int:
        return sum(len(produces) for produces in self._produces.values())

    @property
    def awaited_partitions(self) -> int:
        """The number of partitions for which a consumer's fetch waits."""
        return len(self._commits)

    # -- events of partitions --------------------------------------------------------

    def log_grew(self, partition: Partition) -> None:
        for watch in self._watches.get(partition, ()):
            watch.log_grew(partition)

    def followers_forgotten(self, partition: Partition) -> None:
        for watch in self._watches.get(partition, ()):
            watch.followers_forgotten(partition)

    def log_start_moved(self, partition: Partition) -> None:
        for watch in self._watches.get(partition, ()):
            watch.log_start_moved(partition)

    def high_watermark_moved(self, partition: Partition) -> None:
        for watch in self._watches.get(partition, ()):
            watch.high_watermark_moved(partition)
        for event in self._commits.get(partition.name, ()):
            event.set()
        self._reached(partition, Acks.ALL, partition.high_watermark)

    def log_synced(self, partition: Partition) -> None:
        self._reached(partition, Acks.LEADER, partition.counted_end)

    def _reached(self, partition: Partition, acks: Acks, offset: int) -> None:
        produces = self._produces.get((partition.name, acks))
        if produces is not None:
            produces.reached(offset)
            self._drop_if_empty(partition.name, acks, produces)

    def leadership_ended(self, partition: Partition) -> None:
        """Ends all waits of this partition.

        A produce that waits may or may not survive in the next epoch: its outcome is not known,
        whatever the high watermark does later (rule `waiting-produce-ends-with-epoch`).
        """
        for watch in self._watches.get(partition, ()):
            watch.leadership_ended(partition)
        for event in self._commits.get(partition.name, ()):
            event.set()
        error = TidelogError(
            ErrorCode.LEADER_CHANGED,
            f"{partition.name} changed its leader while the append waited for its "
            "replicas; the outcome is unknown",
        )
        for acks in (Acks.LEADER, Acks.ALL):
            produces = self._produces.pop((partition.name, acks), None)
            if produces is not None:
                produces.end(error)

    # -- waits of requests -----------------------------------------------------------

    def watch(self, partition: Partition, watch: ReplicaWatch) -> None:
        """Notifies `watch` of this partition until `unwatch`."""
        self._watches.setdefault(partition, {})[watch] = None

    def unwatch(self, partition: Partition, watch: ReplicaWatch) -> None:
        watches = self._watches.get(partition, {})
        watches.pop(watch, None)
        if not watches:
            self._watches.pop(partition, None)

    @contextmanager
    def commits(self, names: Iterable[TopicPartition]) -> Iterator[asyncio.Event]:
        """Yields an event that is set when a high watermark moves or a leadership ends."""
        with _registered(self._commits, names) as event:
            yield event

    def committed(self, partition: Partition, next_offset: int) -> Committed:
        """Returns a future that is done when the high watermark reaches `next_offset`.

        Its result is LEADER_CHANGED if the epoch ends first. A caller that stops waiting must call
        `give_up`.
        """
        return self._until(partition, Acks.ALL, partition.high_watermark, next_offset)

    def synced(self, partition: Partition, next_offset: int) -> Committed:
        """Like `committed`, for the leader's own disk, if the topic's durability is `synced`."""
        return self._until(partition, Acks.LEADER, partition.counted_end, next_offset)

    def _until(self, partition: Partition, acks: Acks, reached: int, next_offset: int) -> Committed:
        future: Committed = asyncio.get_running_loop().create_future()
        if reached >= next_offset:
            future.set_result(None)
        else:
            waiting = self._produces.setdefault((partition.name, acks), _WaitingProduces())
            waiting.add(next_offset, future)
        return future

    def give_up(
        self, name: TopicPartition, acks: Acks, future: Committed, why: TidelogError
    ) -> None:
        """Ends the wait with this error; has no effect if it is over."""
        produces = self._produces.get((name, acks))
        if produces is not None:
            produces.give_up(future, why)
            self._drop_if_empty(name, acks, produces)

    def _drop_if_empty(self, name: TopicPartition, acks: Acks, produces: _WaitingProduces) -> None:
        if not len(produces):
            del self._produces[name, acks]


@contextmanager
def _registered(
    waiters: dict[TopicPartition, dict[asyncio.Event, None]], names: Iterable[TopicPartition]
) -> Iterator[asyncio.Event]:
    event = asyncio.Event()
    names = tuple(names)
    for name in names:
        waiters.setdefault(name, {})[event] = None
    try:
        yield event
    finally:
        for name in names:
            events = waiters[name]
            events.pop(event, None)
            if not events:
                del waiters[name]
