"""How close to each other steps of moves may come (section 4 of ARCHITECTURE.md). Pure.

A step of a move that copies has every replica follow anew, and an operation asks for many of
them at once: a wave of them would fill the brokers' processors, and whoever writes would wait
for that. Elections, changes of the ISR and moves that copy nothing do not wait.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.model import TopicPartition
from tidelog_controller.policies.reassignment import is_step
from tidelog_controller.state.purposes import PartitionWrite

STEP_INTERVAL_MS = 25


class MovePace:
    """Steps take their turns in the order in which they are first asked about, each at the
    first time that is `interval_ms` after the turns of all whom it concerns."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        # Whom a step concerns may take part in another one from then on.
        self._free_at_ms: dict[int, int] = {}
        # Those of partitions whose step has yet to be written.
        self._turns_ms: dict[TopicPartition, int] = {}

    def may_step(self, partition: TopicPartition, brokers: Collection[int], now_ms: int) -> bool:
        """Whether its turn has come; asked again, it has the same. `now_ms` never falls."""
        turn_ms = self._turns_ms.get(partition)
        if turn_ms is None:
            turn_ms = max([now_ms, *(self._free_at_ms.get(b, now_ms) for b in brokers)])
            self._turns_ms[partition] = turn_ms
            self._free_at_ms.update(dict.fromkeys(brokers, turn_ms + self._interval_ms))
        return turn_ms <= now_ms

    def settled(self, partition: TopicPartition) -> None:
        """Its step is on its way to the store, or none is to be taken any more: its turn is over.
        A step that the store refuses takes another."""
        self._turns_ms.pop(partition, None)

    def due(self, now_ms: int) -> list[TopicPartition]:
        """Those whose turn has come."""
        return [partition for partition, turn_ms in self._turns_ms.items() if turn_ms <= now_ms]

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When the next turn comes after now; None: none does."""
        return min((turn for turn in self._turns_ms.values() if turn > now_ms), default=None)


def brokers_of_step(write: PartitionWrite) -> tuple[int, ...]:
    """Whom a step of a move that copies concerns; empty: the write is none."""
    old, new = write.old, write.new
    if old is None or new is None or not is_step(old, new):
        return ()
    moving = new.moving or old.moving
    return moving.replicas if moving is not None and moving.adding else ()
