"""Determines which broker acknowledged a batch, when a producer gets only its offset and epoch.
Pure.

A leader answers a repeated batch with the position of the original, in the epoch of that one, which
may have been another leader's. So only answers to batches that were sent once identify the
leader."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.history import NO_BROKER
from tidelog.model import TopicPartition

# For one partition and leader epoch: far more than are in flight at once.
MAX_ANSWERS = 1_000


class Sequenced(NamedTuple):
    """A batch as sent, with the producer's sequence number."""

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
        """Notes batches that one answer acknowledged, from `base_offset` on. NO_BROKER: the leader
        is not known."""
        self._sent.difference_update(batches)
        partition = batches[0].partition
        answers = self._answers.setdefault((partition, leader_epoch), [])
        insort(answers, (base_offset, broker_id))
        del answers[:-MAX_ANSWERS]

    def of(self, partition: TopicPartition, leader_epoch: int, offset: int) -> int:
        answers = self._answers.get((partition, leader_epoch), [])
        index = bisect_right(answers, offset, key=lambda answer: answer[0])
        return answers[index - 1][1] if index else NO_BROKER
