"""Requests to leaders for the progress of moves, made while a client waits for it.

At most one request is in flight to each broker. A lost request is not repeated automatically:
callers that still need the answer request it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.control.log_descriptions import MAX_PARTITIONS_PER_QUESTION
from tidelog_controller.state.operation_registry import Operations
from tidelog_runtime.replica_control import DescribeReplicasResult

# Topic id and partition number, as sent to brokers.
_Key = tuple[str, int]


class Measurement(NamedTuple):
    """A partition and its leader."""

    partition: TopicPartition
    topic_id: str
    leader: int


class _DescribeRequest(NamedTuple):
    id: int
    partitions: dict[_Key, TopicPartition]


class MoveProgressProbe:
    """Measures the progress of moves and passes the leaders' answers to `operations`."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._requested: dict[int, dict[_Key, TopicPartition]] = {}
        self._in_flight: dict[int, _DescribeRequest] = {}

    def request(self, measurements: Iterable[Measurement]) -> None:
        """Requests those partitions that are not in flight already."""
        for partition, topic_id, leader in measurements:
            key = (topic_id, partition.partition)
            request = self._in_flight.get(leader)
            if request is None or key not in request.partitions:
                self._requested.setdefault(leader, {})[key] = partition

    def pending(self) -> Iterator[TopicPartition]:
        """The partitions whose leaders have no request yet, or have not answered it."""
        for wanted in self._requested.values():
            yield from wanted.values()
        for request in self._in_flight.values():
            yield from request.partitions.values()

    def due(self, control: BrokerControl) -> list[_Key]:
        """What to request from the broker now, by topic id and number."""
        wanted = self._requested.get(control.broker_id)
        if not wanted or control.broker_id in self._in_flight:
            return []
        return list(islice(wanted, MAX_PARTITIONS_PER_QUESTION))

    def mark_sent(self, control: BrokerControl, command_id: int, keys: Iterable[_Key]) -> None:
        broker_id = control.broker_id
        wanted = self._requested[broker_id]
        partitions = {key: wanted.pop(key) for key in keys}
        if not wanted:
            del self._requested[broker_id]
        self._in_flight[broker_id] = _DescribeRequest(command_id, partitions)

    def answered(
        self, broker_id: int, command_id: int, result: DescribeReplicasResult, now_ms: int
    ) -> None:
        request = self._end(broker_id, command_id)
        if request is None or result.error is not None:
            return
        for replica in result.replicas:
            partition = request.partitions.get((replica.topic_id, replica.partition))
            if partition is not None and replica.size_bytes >= 0:
                lacks = dict(replica.lacks)
                self._operations.measured(partition, replica.size_bytes, lacks, now_ms)

    def lost(self, broker_id: int, command_id: int) -> None:
        """Drops the request, and the requests that would have followed it."""
        if self._end(broker_id, command_id) is not None:
            self._requested.pop(broker_id, None)

    def forget_broker(self, broker_id: int) -> None:
        self._requested.pop(broker_id, None)
        self._in_flight.pop(broker_id, None)

    def _end(self, broker_id: int, command_id: int) -> _DescribeRequest | None:
        request = self._in_flight.get(broker_id)
        if request is None or request.id != command_id:
            return None
        del self._in_flight[broker_id]
        return request
