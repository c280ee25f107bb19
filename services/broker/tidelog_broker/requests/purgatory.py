"""Where requests wait: produces for the high watermark or the disk, consumers for data.
The sessions of followers are told here, too.

Everything is woken by the step that makes the wait pointless; nothing polls.
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

# None: committed, or synced; else why nobody knows whether it will be.
Committed: TypeAlias = "asyncio.Future[TidelogError | None]"


class _WaitingProduces:
    """Those of one partition that wait for the same, by the offset to reach. Whoever gives
    up stays in the heap until half of it has: a high watermark that stands still for ever
    (the store is away, a follower is dead) would else collect every produce that timed
    out."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Committed]] = []
        self._ties = count()
        self._given_up = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, next_offset: int, future: Committed) -> None:
        heapq.heappush(self._heap, (next_offset, next(self._ties), future))

    def give_up(self, future: Committed, why: TidelogError) -> None:
        """A future that its waiter's own end has cancelled is still in the heap."""
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
        """How much is kept for what waits; 0: nothing waits."""
        return self.waiting_produces + len(self._watches) + len(self._commits)

    @property
    def waiting_produces(self) -> int:
        return sum(len(produces) for produces in self._produces.values())

    @property
    def awaited_partitions(self) -> int:
        """Those that a consumer's fetch waits for."""
        return len(self._commits)

    # -- told by partitions --------------------------------------------------------

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
        """A produce that waits may or may not survive in the next epoch: its outcome is
        unknown, whatever the high watermark does later (interleaving 8)."""
        for watch in self._watches.get(partition, ()):
            watch.leadership_ended(partition)
        for event in self._commits.get(partition.name, ()):
            event.set()
        error = TidelogError(
            ErrorCode.LEADER_CHANGED,
            f"{partition.name} changed its leader while the append waited for its "
            "replicas; whether it was kept is not known",
        )
        for acks in (Acks.LEADER, Acks.ALL):
            produces = self._produces.pop((partition.name, acks), None)
            if produces is not None:
                produces.end(error)

    # -- waited for by requests ----------------------------------------------------

    def watch(self, partition: Partition, watch: ReplicaWatch) -> None:
        """Told of this partition until `unwatch`."""
        self._watches.setdefault(partition, {})[watch] = None

    def unwatch(self, partition: Partition, watch: ReplicaWatch) -> None:
        watches = self._watches.get(partition, {})
        watches.pop(watch, None)
        if not watches:
            self._watches.pop(partition, None)

    @contextmanager
    def commits(self, names: Iterable[TopicPartition]) -> Iterator[asyncio.Event]:
        """An event that is set when any of these high watermarks moves, or its leadership
        ends."""
        with _registered(self._commits, names) as event:
            yield event

    def committed(self, partition: Partition, next_offset: int) -> Committed:
        """Done when the high watermark has reached `next_offset` in this epoch, or with
        LEADER_CHANGED when the epoch has ended first. Whoever stops waiting says so to
        `give_up`."""
        return self._until(partition, Acks.ALL, partition.high_watermark, next_offset)

    def synced(self, partition: Partition, next_offset: int) -> Committed:
        """The same for the leader's own disk, where the topic's durability is `synced`."""
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
        """Ends the wait with this answer; does nothing where it is over."""
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
