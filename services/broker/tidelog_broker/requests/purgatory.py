"""The purgatory: where requests wait.

An event of one partition may end thousands of waits. The purgatory ends a bounded number of them in
one turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TypeAlias

from tidelog.errors import TidelogError
from tidelog.model import Acks, TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.waiting_requests import WaitingProduces, WaitingRequests, Wakeable
from tidelog_runtime.shared_turns import SharedTurns

# Work of all fetches of consumers in one turn of the event loop, two to four milliseconds. Its unit
# is a partition without news, or the wake-up of a fetch.
FETCH_WORK_PER_TURN = 64
# Produces that are answered in one turn: each takes some hundred microseconds.
PRODUCES_PER_TURN = 64
# Partitions of a fetch that are registered in one unit of work.
_REGISTERED_PER_WORK = 64
# Waits that are ended in one step.
_WAITS_PER_STEP = 16

# None: committed, or synced. An error: it is not known whether it will be.
Committed: TypeAlias = "asyncio.Future[TidelogError | None]"


def work_of_registering(partitions: int) -> int:
    """Returns the work of registering a fetch of so many partitions, or of ending it."""
    return 1 + partitions // _REGISTERED_PER_WORK


class WaitingFetch(asyncio.Event):
    """The wait of one consumer's fetch. It also knows which partitions to read again."""

    def __init__(self, turns: SharedTurns) -> None:
        super().__init__()
        self._turns = turns
        self._moved: dict[TopicPartition, None] = {}

    def moved(self, name: TopicPartition) -> None:
        self._moved[name] = None
        super().set()

    def set(self) -> None:
        """Wakes the fetch in its turn: many deadlines may pass together."""
        self._turns.do(self._wake)

    def _wake(self) -> int:
        super().set()
        return 1

    def take_moved(self) -> Iterable[TopicPartition]:
        """Returns the partitions that moved since the last call, and waits again."""
        self.clear()
        moved, self._moved = self._moved, {}
        return moved


class Purgatory(WaitingRequests):
    """The waiting requests, with the futures and events of the event loop on which they wait.

    - `fetch_turns`: for all work of consumers' fetches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fetch_turns = SharedTurns(FETCH_WORK_PER_TURN)
        self._produce_turns = SharedTurns(PRODUCES_PER_TURN)
        # Partitions whose fetches are to be woken, and produces to be released.
        self._to_wake: set[TopicPartition] = set()
        self._to_release: set[WaitingProduces] = set()

    @contextmanager
    def commits(self, names: Iterable[TopicPartition]) -> Iterator[WaitingFetch]:
        """Yields a wait that ends when a high watermark moves or a leadership ends."""
        wait = WaitingFetch(self.fetch_turns)
        names = tuple(names)
        self.add_fetch(names, wait)
        try:
            yield wait
        finally:
            # In its turn: a client may cancel thousands of fetches together.
            self.fetch_turns.do(partial(self._end_fetch, names, wait))

    def _end_fetch(self, names: Sequence[TopicPartition], wait: WaitingFetch) -> int:
        self.remove_fetch(names, wait)
        return work_of_registering(len(names))

    def wake_fetches(self, name: TopicPartition) -> None:
        if name in self._commits and name not in self._to_wake:
            self._to_wake.add(name)
            self.fetch_turns.do(partial(self._begin_waking, name))

    def _begin_waking(self, name: TopicPartition) -> int:
        # A later move wakes all of them again.
        self._to_wake.discard(name)
        return self._wake_some(name, iter(tuple(self._commits.get(name, ()))))

    def _wake_some(self, name: TopicPartition, waits: Iterator[Wakeable]) -> int:
        woken = 0
        for wait in islice(waits, _WAITS_PER_STEP):
            wait.moved(name)
            woken += 1
        if woken == _WAITS_PER_STEP:
            self.fetch_turns.do(partial(self._wake_some, name, waits))
        return woken

    def release_produces(self, name: TopicPartition, acks: Acks, produces: WaitingProduces) -> None:
        if produces not in self._to_release:
            self._to_release.add(produces)
            self._produce_turns.do(partial(self._release_some, name, acks, produces))

    def _release_some(self, name: TopicPartition, acks: Acks, produces: WaitingProduces) -> int:
        released = produces.release(_WAITS_PER_STEP)
        if released == _WAITS_PER_STEP:
            self._produce_turns.do(partial(self._release_some, name, acks, produces))
        else:
            self._to_release.discard(produces)
            self.drop_if_empty(name, acks, produces)
        return released

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
        self.add_produce(partition, acks, reached, next_offset, future)
        return future
