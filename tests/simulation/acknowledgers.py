"""Which broker acknowledged a batch, as its leader, when clients are told no more than where it
lies."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection

from tidelog.history import NO_BROKER
from tidelog.model import TopicPartition
from tidelog.v1 import broker_pb2


def broker_id_of(address: str) -> int:
    """Of "broker-1:7500"."""
    return int(address.partition(":")[0].rpartition("-")[2])


class Acknowledgers:
    """Of the topics named `judged`. `epoch_led`: by a broker of this address, of a partition,
    at this moment; NO_EPOCH: it does not lead it."""

    def __init__(
        self, judged: Collection[str], epoch_led: Callable[[str, TopicPartition], int]
    ) -> None:
        self._judged = judged
        self._epoch_led = epoch_led
        # By host of the client, partition and leader epoch: the base offsets that it was told,
        # in order, each with the broker that led in this epoch when it told it, or NO_BROKER.
        self._answers: dict[tuple[str, TopicPartition, int], list[tuple[int, int]]] = {}

    def answered(self, source: str, target: str, answer: broker_pb2.ProduceResponse) -> None:
        """A leader tells a batch that is sent again in the epoch of its original, which may be
        another's: it acknowledges writes in its own epoch alone."""
        for told in answer.partitions:
            partition = TopicPartition(told.topic, told.partition)
            if told.HasField("error") or partition.topic not in self._judged:
                continue
            leads = self._epoch_led(target, partition) == told.leader_epoch
            answered = (told.base_offset, broker_id_of(target) if leads else NO_BROKER)
            answers = self._answers.setdefault((source, partition, told.leader_epoch), [])
            # After others of this offset: the last one counts.
            insort(answers, answered, key=lambda answer: answer[0])

    def of(self, host: str, partition: TopicPartition, leader_epoch: int, offset: int) -> int:
        """A batch may not be the first of those that were answered together."""
        answers = self._answers.get((host, partition, leader_epoch), [])
        index = bisect_right(answers, offset, key=lambda answer: answer[0])
        return answers[index - 1][1] if index else NO_BROKER
