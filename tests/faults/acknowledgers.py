"""Which broker acknowledged a batch, when producers are told no more than where it lies. Pure.

A leader tells a batch that is sent again where its original lies, in the epoch of that, which
may have been another's. So only answers to what was sent once say who led.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.history import NO_BROKER
from tidelog.model import TopicPartition

# Of one partition and leader epoch: far more than are on their way at once.
MAX_ANSWERS = 1_000


class Sequenced(NamedTuple):
    """A batch as it is sent: its producer numbers it."""

    partition: TopicPartition
    producer_id: int
    base_sequence: int


class Acknowledgers:
    def __init__(self) -> None:
        self._sent: set[Sequenced] = set()
        self._answers: dict[tuple[TopicPartition, int], list[tuple[int, int]]] = {}

    def sent(self, batches: Sequence[Sequenced]) -> bool:
        """Whether all of them are sent for the first time."""
        is_first = self._sent.isdisjoint(batches)
        self._sent.update(batches)
        return is_first

    def acknowledged(
        self,
        batches: Sequence[Sequenced],
        leader_epoch: int,
        base_offset: int,
        broker_id: int,
    ) -> None:
        """Answered together, from `base_offset` on. NO_BROKER: it is not known who led."""
        self._sent.difference_update(batches)
        partition = batches[0].partition
        answers = self._answers.setdefault((partition, leader_epoch), [])
        insort(answers, (base_offset, broker_id))
        del answers[:-MAX_ANSWERS]

    def of(self, partition: TopicPartition, leader_epoch: int, offset: int) -> int:
        answers = self._answers.get((partition, leader_epoch), [])
        index = bisect_right(answers, offset, key=lambda answer: answer[0])
        return answers[index - 1][1] if index else NO_BROKER
