"""How close to each other writes may come that nobody waits for in need (section 4 of
docs/internals/protocol.md). Pure.

A step of a move that copies has every replica follow anew, and so does a leader that hands over;
an operation asks for many of them at once, and a wave of them would fill the brokers' processors:
whoever writes would wait for that. Elections in place of a leader that is gone, changes of the ISR
and moves that copy nothing do not wait.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_controller.policies.reassignment import is_step
from tidelog_controller.state.purposes import PartitionWrite


class Intervals(NamedTuple):
    """Milliseconds from a write to the next one that concerns one of the same brokers."""

    move_step_ms: int
    handover_ms: int


INTERVALS = Intervals(move_step_ms=150, handover_ms=100)

# Of those that wait, so many are looked at for one whose brokers are free.
_MAX_LOOKED_AT = 64


class Turns:
    """In the order in which they are first asked for; a later one goes first only where it
    concerns none of the brokers of those before it."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        # Whom a write concerned may take part in another one from then on.
        self._free_at_ms: dict[int, int] = {}
        # Whom each concerns.
        self._waiting: dict[TopicPartition, Collection[int]] = {}
        self._given: dict[TopicPartition, None] = {}

    def has_one(self, partition: TopicPartition, brokers: Collection[int], now_ms: int) -> bool:
        """From when its turn has come until it is settled. `now_ms` never falls."""
        if partition not in self._given:
            self._waiting[partition] = brokers
            self._give(now_ms)
        return partition in self._given

    def give_back(self, partition: TopicPartition) -> None:
        """A turn that was used for nothing: it has it still."""
        self._given[partition] = None

    def settled(self, partition: TopicPartition) -> None:
        self._waiting.pop(partition, None)
        self._given.pop(partition, None)

    def due(self, now_ms: int) -> list[TopicPartition]:
        """Those whose turn has come."""
        self._give(now_ms)
        return list(self._given)

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When the next turn may come after now; None: nobody waits."""
        if not self._waiting:
            return None
        return min((free for free in self._free_at_ms.values() if free > now_ms), default=None)

    def _give(self, now_ms: int) -> None:
        ahead: set[int] = set()
        for partition, brokers in list(islice(self._waiting.items(), _MAX_LOOKED_AT)):
            is_free = all(self._free_at_ms.get(broker, now_ms) <= now_ms for broker in brokers)
            if is_free and ahead.isdisjoint(brokers):
                del self._waiting[partition]
                self._given[partition] = None
                self._free_at_ms.update(dict.fromkeys(brokers, now_ms + self._interval_ms))
            ahead.update(brokers)


class WritePace:
    def __init__(self, intervals: Intervals) -> None:
        self._steps = Turns(intervals.move_step_ms)
        self._handovers = Turns(intervals.handover_ms)

    def may_write(self, write: PartitionWrite, now_ms: int) -> bool:
        """Whether its turn has come, if it takes one."""
        turns, brokers = self._turns_of(write)
        return not brokers or turns.has_one(write.partition, brokers, now_ms)

    def refused(self, write: PartitionWrite) -> None:
        """By the store: it goes on with the turn that it had."""
        turns, brokers = self._turns_of(write)
        if brokers:
            turns.give_back(write.partition)

    def settled(self, partition: TopicPartition) -> None:
        """What it waited for is on its way to the store, or is not wanted any more."""
        self._steps.settled(partition)
        self._handovers.settled(partition)

    def due(self, now_ms: int) -> list[TopicPartition]:
        """Those whose turn has come."""
        return self._steps.due(now_ms) + self._handovers.due(now_ms)

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When the next turn may come after now; None: nobody waits."""
        turns = (self._steps.wake_at_ms(now_ms), self._handovers.wake_at_ms(now_ms))
        return min((at_ms for at_ms in turns if at_ms is not None), default=None)

    def _turns_of(self, write: PartitionWrite) -> tuple[Turns, Collection[int]]:
        """With whom it concerns; nobody: it takes no turn."""
        if write.is_handover and write.old is not None and write.new is not None:
            return self._handovers, (write.old.leader, write.new.leader)
        return self._steps, _copied_among(write)


def _copied_among(write: PartitionWrite) -> Collection[int]:
    """Whom a step of a move that copies concerns; empty: the write is none."""
    old, new = write.old, write.new
    if old is None or new is None or not is_step(old, new):
        return ()
    moving = new.moving or old.moving
    return moving.replicas if moving is not None and moving.adding else ()
