"""Minimum intervals between writes that are not urgent. Pure.

Rule `moves-leave-time-for-writes`. A step of a move that copies makes every replica follow
from scratch, and so does a leadership transfer. An operation requests many of them at once. A wave
of them would keep the brokers' processors busy, and clients that produce would wait. Elections in
place of a lost leader, changes of the ISR and moves that copy nothing do not wait.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_controller.policies.reassignment import is_step
from tidelog_controller.state.mutations import PartitionWrite


class Intervals(NamedTuple):
    """Milliseconds between two writes that concern the same broker."""

    move_step_ms: int
    handover_ms: int


INTERVALS = Intervals(move_step_ms=150, handover_ms=100)

# The number of waiting partitions that are checked for one whose brokers are free.
_MAX_LOOKED_AT = 64


class BrokerWriteLimiter:
    """Grants turns to partitions in the order of their first request.

    A later partition goes first only if it shares no broker with those before it.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        # By broker: from when on it may take part in another write.
        self._free_at_ms: dict[int, int] = {}
        # The brokers that each waiting partition concerns.
        self._waiting: dict[TopicPartition, Collection[int]] = {}
        self._granted: dict[TopicPartition, None] = {}

    def try_acquire(self, partition: TopicPartition, brokers: Collection[int], now_ms: int) -> bool:
        """Whether the partition has its turn; it keeps it until `release`.

        `now_ms` never decreases.
        """
        if partition not in self._granted:
            self._waiting[partition] = brokers
            self._grant(now_ms)
        return partition in self._granted

    def keep_turn(self, partition: TopicPartition) -> None:
        """Lets the partition keep its turn after a write that failed."""
        self._granted[partition] = None

    def release(self, partition: TopicPartition) -> None:
        self._waiting.pop(partition, None)
        self._granted.pop(partition, None)

    def due(self, now_ms: int) -> list[TopicPartition]:
        """The partitions that have their turn."""
        self._grant(now_ms)
        return list(self._granted)

    def wake_at_ms(self, now_ms: int) -> int | None:
        """The earliest time after now at which a turn may be granted; None: no partition waits."""
        if not self._waiting:
            return None
        return min((free for free in self._free_at_ms.values() if free > now_ms), default=None)

    def _grant(self, now_ms: int) -> None:
        ahead: set[int] = set()
        for partition, brokers in list(islice(self._waiting.items(), _MAX_LOOKED_AT)):
            is_free = all(self._free_at_ms.get(broker, now_ms) <= now_ms for broker in brokers)
            if is_free and ahead.isdisjoint(brokers):
                del self._waiting[partition]
                self._granted[partition] = None
                self._free_at_ms.update(dict.fromkeys(brokers, now_ms + self._interval_ms))
            ahead.update(brokers)


class WritePace:
    def __init__(self, intervals: Intervals) -> None:
        self._steps = BrokerWriteLimiter(intervals.move_step_ms)
        self._handovers = BrokerWriteLimiter(intervals.handover_ms)

    def may_write(self, write: PartitionWrite, now_ms: int) -> bool:
        """Whether the write may be made now: it has its turn, or needs none."""
        limiter, brokers = self._limiter_of(write)
        return not brokers or limiter.try_acquire(write.partition, brokers, now_ms)

    def rejected(self, write: PartitionWrite) -> None:
        """The store rejected the write; its partition keeps its turn."""
        limiter, brokers = self._limiter_of(write)
        if brokers:
            limiter.keep_turn(write.partition)

    def release(self, partition: TopicPartition) -> None:
        """The partition's write is on its way to the store, or is no longer needed."""
        self._steps.release(partition)
        self._handovers.release(partition)

    def due(self, now_ms: int) -> list[TopicPartition]:
        """The partitions that have their turn."""
        return self._steps.due(now_ms) + self._handovers.due(now_ms)

    def wake_at_ms(self, now_ms: int) -> int | None:
        """The earliest time after now at which a turn may be granted; None: no partition waits."""
        times = (self._steps.wake_at_ms(now_ms), self._handovers.wake_at_ms(now_ms))
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _limiter_of(self, write: PartitionWrite) -> tuple[BrokerWriteLimiter, Collection[int]]:
        """The limiter of the write, and the brokers that it concerns; empty: it needs no turn."""
        if write.is_handover and write.old is not None and write.new is not None:
            return self._handovers, (write.old.leader, write.new.leader)
        return self._steps, _copied_among(write)


def _copied_among(write: PartitionWrite) -> Collection[int]:
    """The brokers that a copying step of a move concerns; empty: the write is not such a step."""
    old, new = write.old, write.new
    if old is None or new is None or not is_step(old, new):
        return ()
    moving = new.moving or old.moving
    return moving.replicas if moving is not None and moving.adding else ()
