"""How much of their logs moves have copied, asked of the leaders while somebody wants to know.

One question is in flight to each broker. What is lost is not asked again by itself: whoever
still wants to know asks anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.control.descriptions import MAX_PARTITIONS_PER_QUESTION
from tidelog_controller.state.operations import Operations
from tidelog_runtime.replica_control import DescribeReplicasResult

# By topic id and number, as brokers are asked.
_Key = tuple[str, int]


class Asked(NamedTuple):
    """A partition, and who leads it."""

    partition: TopicPartition
    topic_id: str
    leader: int


class _Question(NamedTuple):
    id: int
    partitions: dict[_Key, TopicPartition]


class Measures:
    """What leaders tell goes to `operations`."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._wanted: dict[int, dict[_Key, TopicPartition]] = {}
        self._in_flight: dict[int, _Question] = {}

    def ask(self, asked: Iterable[Asked]) -> None:
        """Those that are not asked about already."""
        for partition, topic_id, leader in asked:
            key = (topic_id, partition.partition)
            question = self._in_flight.get(leader)
            if question is None or key not in question.partitions:
                self._wanted.setdefault(leader, {})[key] = partition

    def pending(self) -> Iterator[TopicPartition]:
        """Those whose leaders have yet to be asked, or to answer."""
        for wanted in self._wanted.values():
            yield from wanted.values()
        for question in self._in_flight.values():
            yield from question.partitions.values()

    def due(self, control: BrokerControl) -> list[_Key]:
        """What the broker is to be asked now, by topic id and number."""
        wanted = self._wanted.get(control.broker_id)
        if not wanted or control.broker_id in self._in_flight:
            return []
        return list(islice(wanted, MAX_PARTITIONS_PER_QUESTION))

    def asked(self, control: BrokerControl, question_id: int, asked: Iterable[_Key]) -> None:
        broker_id = control.broker_id
        wanted = self._wanted[broker_id]
        partitions = {key: wanted.pop(key) for key in asked}
        if not wanted:
            del self._wanted[broker_id]
        self._in_flight[broker_id] = _Question(question_id, partitions)

    def answered(
        self, broker_id: int, question_id: int, result: DescribeReplicasResult, now_ms: int
    ) -> None:
        question = self._end(broker_id, question_id)
        if question is None or result.error is not None:
            return
        for replica in result.replicas:
            partition = question.partitions.get((replica.topic_id, replica.partition))
            if partition is not None and replica.size_bytes >= 0:
                lacks = dict(replica.lacks)
                self._operations.measured(partition, replica.size_bytes, lacks, now_ms)

    def lost(self, broker_id: int, question_id: int) -> None:
        """With it go the questions that would have followed."""
        if self._end(broker_id, question_id) is not None:
            self._wanted.pop(broker_id, None)

    def forget_broker(self, broker_id: int) -> None:
        self._wanted.pop(broker_id, None)
        self._in_flight.pop(broker_id, None)

    def _end(self, broker_id: int, question_id: int) -> _Question | None:
        question = self._in_flight.get(broker_id)
        if question is None or question.id != question_id:
            return None
        del self._in_flight[broker_id]
        return question
