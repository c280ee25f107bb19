"""Finds the broker that acknowledged a batch as its leader: clients learn only where it is."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection

from tidelog.history import NO_BROKER
from tidelog.model import TopicPartition
from tidelog.v1 import broker_pb2


def broker_id_of(address: str) -> int:
    """Returns 1 for "broker-1:7500"."""
    return int(address.partition(":")[0].rpartition("-")[2])


class Acknowledgers:
    """Acknowledgements in the topics named `judged`.

    - `epoch_led`: returns the epoch in which the broker of an address leads a partition now, or
      NO_EPOCH if it does not lead it
    """

    def __init__(
        self, judged: Collection[str], epoch_led: Callable[[str, TopicPartition], int]
    ) -> None:
        self._judged = judged
        self._epoch_led = epoch_led
        # By client host, partition and leader epoch: the base offsets that the client received, in
        # order, each with the broker that led in this epoch when it answered, or NO_BROKER.
        self._answers: dict[tuple[str, TopicPartition, int], list[tuple[int, int]]] = {}

    def answered(self, source: str, target: str, answer: broker_pb2.ProduceResponse) -> None:
        """Notes the answer to a produce request.

        A leader answers a duplicate batch with the epoch of the original, in which another
        broker may have led. It acknowledges writes only in its own epoch.
        """
        for told in answer.partitions:
            partition = TopicPartition(told.topic, told.partition)
            if told.HasField("error") or partition.topic not in self._judged:
                continue
            leads = self._epoch_led(target, partition) == told.leader_epoch
            answered = (told.base_offset, broker_id_of(target) if leads else NO_BROKER)
            answers = self._answers.setdefault((source, partition, told.leader_epoch), [])
            # Behind others of this offset, since the last one counts.
            insort(answers, answered, key=lambda answer: answer[0])

    def of(self, host: str, partition: TopicPartition, leader_epoch: int, offset: int) -> int:
        """Returns the broker that acknowledged `offset`, or NO_BROKER.

        The batch may not be the first of its answer.
        """
        answers = self._answers.get((host, partition, leader_epoch), [])
        index = bisect_right(answers, offset, key=lambda answer: answer[0])
        return answers[index - 1][1] if index else NO_BROKER
