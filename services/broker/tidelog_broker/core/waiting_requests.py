"""Which requests wait: produces for the high watermark or the disk, consumers for data.

It also passes events of partitions to the sessions of followers. Every wait ends with the event
that makes it pointless; nothing polls.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import Protocol

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET, Acks, TopicPartition
from tidelog_broker.core.partition.listener import ReplicaWatch
from tidelog_broker.core.partition.partition import Partition


class PendingCommit(Protocol):
    """A produce that waits; a future is one.

    Its result is None once the batch is committed or synced, or an error: then it is not known
    whether it will be.
    """

    def done(self) -> bool: ...

    def cancelled(self) -> bool: ...

    def set_result(self, result: TidelogError | None, /) -> None: ...


class Wakeable(Protocol):
    """A consumer's fetch that waits."""

    def moved(self, name: TopicPartition) -> None:
        """Wakes the fetch: the high watermark of the partition moved, or its leadership ended."""


class WaitingProduces:
    """Produces of one partition that wait for the same condition, by the offset to reach.

    A produce that gives up stays in the heap until half of the heap has given up. The heap is
    cleaned then: otherwise a stalled high watermark (the store is unavailable, a follower is dead)
    would collect every produce that timed out.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, PendingCommit]] = []
        self._ties = count()
        self._given_up = 0
        # Produces up to this offset are to be released; with an error, all of them.
        self._reached = NO_OFFSET
        self._error: TidelogError | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, next_offset: int, wait: PendingCommit) -> None:
        heapq.heappush(self._heap, (next_offset, next(self._ties), wait))

    def give_up(self, wait: PendingCommit, why: TidelogError) -> None:
        """Ends the wait of a produce.

        A wait that the client has cancelled is still in the heap.
        """
        if not wait.done():
            wait.set_result(why)
        elif not wait.cancelled():
            return
        self._given_up += 1
        if self._given_up * 2 > len(self._heap):
            self._heap = [waiting for waiting in self._heap if not waiting[2].done()]
            heapq.heapify(self._heap)
            self._given_up = 0

    def reach(self, offset: int) -> None:
        """Ends the waits up to this offset, as `release` is called."""
        self._reached = max(self._reached, offset)

    def end(self, error: TidelogError) -> None:
        """Ends all waits, as `release` is called: beyond the reached offset with this error."""
        self._error = error

    def release(self, most: int) -> int:
        """Ends up to `most` waits that are to end. Returns how many."""
        released = 0
        while released < most and self._heap:
            offset = self._heap[0][0]
            is_reached = offset <= self._reached
            if not is_reached and self._error is None:
                break
            released += 1
            wait = heapq.heappop(self._heap)[2]
            if wait.done():
                self._given_up -= 1
            else:
                wait.set_result(None if is_reached else self._error)
        return released


class WaitingRequests:
    """The waiting requests, by the partitions whose events end their waits."""

    def __init__(self) -> None:
        self._watches: dict[Partition, dict[ReplicaWatch, None]] = {}
        self._commits: dict[TopicPartition, dict[Wakeable, None]] = {}
        # With acks=all they wait for the high watermark, with acks=1 for the leader's disk.
        self._produces: dict[tuple[TopicPartition, Acks], WaitingProduces] = {}

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
        self.wake_fetches(partition.name)
        self._reached(partition, Acks.ALL, partition.high_watermark)

    def log_synced(self, partition: Partition) -> None:
        self._reached(partition, Acks.LEADER, partition.counted_end)

    def _reached(self, partition: Partition, acks: Acks, offset: int) -> None:
        produces = self._produces.get((partition.name, acks))
        if produces is not None:
            produces.reach(offset)
            self.release_produces(partition.name, acks, produces)

    def wake_fetches(self, name: TopicPartition) -> None:
        """Wakes the fetches that wait for this partition."""
        for wait in self._commits.get(name, ()):
            wait.moved(name)

    def release_produces(self, name: TopicPartition, acks: Acks, produces: WaitingProduces) -> None:
        """Ends the waits that are to end."""
        produces.release(len(produces))
        self.drop_if_empty(name, acks, produces)

    def leadership_ended(self, partition: Partition) -> None:
        """Ends all waits of this partition.

        A produce that waits may or may not survive in the next epoch: its outcome is not known,
        whatever the high watermark does later (rule `waiting-produce-ends-with-epoch`).
        """
        for watch in self._watches.get(partition, ()):
            watch.leadership_ended(partition)
        self.wake_fetches(partition.name)
        error = TidelogError(
            ErrorCode.LEADER_CHANGED,
            f"{partition.name} changed its leader while the append waited for its "
            "replicas; the outcome is unknown",
        )
        for acks in (Acks.LEADER, Acks.ALL):
            produces = self._produces.pop((partition.name, acks), None)
            if produces is not None:
                produces.end(error)
                self.release_produces(partition.name, acks, produces)

    # -- waits of requests -----------------------------------------------------------

    def watch(self, partition: Partition, watch: ReplicaWatch) -> None:
        """Notifies `watch` of this partition until `unwatch`."""
        self._watches.setdefault(partition, {})[watch] = None

    def unwatch(self, partition: Partition, watch: ReplicaWatch) -> None:
        watches = self._watches.get(partition, {})
        watches.pop(watch, None)
        if not watches:
            self._watches.pop(partition, None)

    def add_fetch(self, names: Iterable[TopicPartition], wait: Wakeable) -> None:
        """Wakes `wait` when a high watermark moves or a leadership ends, until `remove_fetch`."""
        for name in names:
            self._commits.setdefault(name, {})[wait] = None

    def remove_fetch(self, names: Iterable[TopicPartition], wait: Wakeable) -> None:
        for name in names:
            waits = self._commits[name]
            waits.pop(wait, None)
            if not waits:
                del self._commits[name]

    def add_produce(
        self, partition: Partition, acks: Acks, reached: int, next_offset: int, wait: PendingCommit
    ) -> None:
        """Ends `wait` when the high watermark or the synced end has reached `next_offset`.

        It has `reached` this offset by now. A caller that stops waiting must call `give_up`.
        """
        if reached >= next_offset:
            wait.set_result(None)
        else:
            waiting = self._produces.setdefault((partition.name, acks), WaitingProduces())
            waiting.add(next_offset, wait)

    def give_up(
        self, name: TopicPartition, acks: Acks, wait: PendingCommit, why: TidelogError
    ) -> None:
        """Ends the wait with this error; has no effect if it is over."""
        produces = self._produces.get((name, acks))
        if produces is not None:
            produces.give_up(wait, why)
            self.drop_if_empty(name, acks, produces)

    def drop_if_empty(self, name: TopicPartition, acks: Acks, produces: WaitingProduces) -> None:
        if not len(produces) and self._produces.get((name, acks)) is produces:
            del self._produces[name, acks]
