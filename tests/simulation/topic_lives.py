"""Topics that are deleted and created again under their names, while clients use them.

Clients name a topic, but what they receive belongs to one topic id of that name, a *life*. The
request of each accepted answer shows the topic id. The history checks each topic id separately,
as a topic of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulation.violation import Violation
from tidelog import record_batch
from tidelog.history import (
    HistoryChecker,
    LossMark,
    Operation,
    Outcome,
    PollEnded,
    Report,
    SendEnded,
    SendInvoked,
)
from tidelog.model import NO_EPOCH, NO_OFFSET, Record, TopicPartition
from tidelog.rpc.wire import batch_from_wire
from tidelog.v1 import broker_pb2

GONE = "gone-"
AGAIN = "again-"
# Topics that remain, but lose and regain their last partitions.
RESIZED = "tide-"


def is_short_lived(topic: str) -> bool:
    return topic.startswith((GONE, AGAIN))


def life_name(topic: str, topic_id: str) -> str:
    """Returns the name of a topic id in the history."""
    return f"{topic}@{topic_id}"


class _Written(NamedTuple):
    offset: int
    leader_epoch: int
    topic_id: str


class TopicLives:
    """What clients received of short-lived topics, by client host."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, int], list[_Written]] = {}
        # By offset, leader epoch and value: the topic id of the last record that was received.
        self._given: dict[tuple[str, TopicPartition, int, int, int], str] = {}

    def answer_accepted(self, host: str, request: object, answer: object) -> None:
        """Notes the answer that `host` has accepted to its request."""
        if isinstance(answer, broker_pb2.ProduceResponse):
            assert isinstance(request, broker_pb2.ProduceRequest)
            self._produced(host, request, answer)
        elif isinstance(answer, broker_pb2.FetchResponse):
            assert isinstance(request, broker_pb2.FetchRequest)
            self._fetched(host, request, answer)

    def _produced(
        self,
        host: str,
        request: broker_pb2.ProduceRequest,
        answer: broker_pb2.ProduceResponse,
    ) -> None:
        asked = {(p.topic, p.partition): p for p in request.partitions}
        for told in answer.partitions:
            if told.HasField("error") or not is_short_lived(told.topic):
                continue
            sent = asked[told.topic, told.partition]
            offset = told.base_offset
            for wire in sent.batches:
                for value in record_batch.decode(batch_from_wire(wire)).values:
                    written = _Written(offset, told.leader_epoch, sent.topic_id)
                    self._written.setdefault((host, int(value or b"")), []).append(written)
                    offset += 1

    def _fetched(
        self, host: str, request: broker_pb2.FetchRequest, answer: broker_pb2.FetchResponse
    ) -> None:
        ids = {(p.topic, p.partition): p.topic_id for p in request.partitions}
        for told in answer.partitions:
            if not told.batches or not is_short_lived(told.topic):
                continue
            partition = TopicPartition(told.topic, told.partition)
            for wire in told.batches:
                batch = batch_from_wire(wire)
                for index, value in enumerate(record_batch.decode(batch).values):
                    offset = batch.header.base_offset + index
                    key = (host, partition, offset, batch.header.leader_epoch, int(value or b""))
                    self._given[key] = ids[partition]

    def written_in(self, host: str, value: int, offset: int, leader_epoch: int) -> str:
        """Returns the topic id of an acknowledged record."""
        found = [
            written.topic_id
            for written in self._written.get((host, value), ())
            if (written.offset, written.leader_epoch) == (offset, leader_epoch)
        ]
        if not found:
            raise Violation(
                "acknowledged_by_nobody",
                f"{host} was answered offset {offset} in epoch {leader_epoch} for value {value}, "
                "which no broker has said",
            )
        return found[-1]

    def given_in(self, host: str, record: Record, value: int) -> str:
        """Returns the topic id of a record that a client received."""
        partition = TopicPartition(record.topic, record.partition)
        found = self._given.get((host, partition, record.offset, record.leader_epoch, value))
        if found is None:
            raise Violation(
                "given_by_nobody",
                f"{host} was given offset {record.offset} in epoch {record.leader_epoch} with "
                f"value {value}, which no broker has sent",
                partition=str(partition),
            )
        return found


class LivesRead:
    """The topic id of a name that each client reads.

    It continues with another one only after it was informed of it, and never goes back.
    """

    def __init__(self, ids_in_order: dict[str, list[str]]) -> None:
        self._ids = ids_in_order
        self._life: dict[tuple[str, TopicPartition], str] = {}
        self._told: dict[str, dict[TopicPartition, None]] = {}

    def of(self, client: str, partition: TopicPartition) -> str | None:
        return self._life.get((client, partition))

    def recreation_reported(self, client: str) -> None:
        """Notes that the client learned that a topic which it reads was created again."""
        mine = {partition: None for reader, partition in self._life if reader == client}
        self._told.setdefault(client, {}).update(mine)

    def read(self, client: str, partition: TopicPartition, topic_id: str) -> None:
        """Notes the topic id that a client reads. Raises `Violation`."""
        before = self._life.get((client, partition))
        if topic_id == before:
            return
        self._life[client, partition] = topic_id
        told = self._told.get(client, {})
        if before is None:
            return
        ids = self._ids[partition.topic]
        if ids.index(topic_id) < ids.index(before):
            raise Violation(
                "former_topic_read",
                f"{client} is given records of {topic_id} after some of {before}, which has "
                "replaced it",
                partition=str(partition),
            )
        if partition not in told:
            raise Violation(
                "topics_mixed",
                f"{client} is given records of {topic_id} after some of {before}, and was not "
                "informed that it is another topic",
                partition=str(partition),
            )
        del told[partition]


class LivesHistory:
    """Operations on short-lived topics.

    Sends have the topic's name, since it is not known yet where they end up; polls have the
    name of a topic id.
    """

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._names: dict[str, dict[str, None]] = {}  # of topic ids, by topic
        self._written: dict[int, str] = {}  # by value, the name of the topic id

    def add(self, operation: Operation) -> None:
        self._operations.append(operation)

    def written(self, topic: str, topic_id: str, values: Sequence[int]) -> None:
        name = self.name(topic, topic_id)
        self._written.update(dict.fromkeys(values, name))

    def name(self, topic: str, topic_id: str) -> str:
        name = life_name(topic, topic_id)
        self._names.setdefault(topic, {})[name] = None
        return name

    def reports(self, marks: Sequence[LossMark]) -> Iterator[Report]:
        """Yields a report for each topic id that a client has met."""
        for topic, names in self._names.items():
            for name in names:
                checker = HistoryChecker()
                for line, operation in enumerate([*self._operations, *marks], 1):
                    seen = self._seen_from(topic, name, operation)
                    if seen is not None:
                        checker.add(line, seen)
                yield checker.finish()

    def _seen_from(self, topic: str, name: str, operation: Operation) -> Operation | None:
        """Returns the operation as the topic id sees it, or None.

        A send that was acknowledged in one topic id may have reached another by an earlier try.
        """
        if isinstance(operation, SendInvoked):
            return operation._replace(topic=name) if operation.topic == topic else None
        if isinstance(operation, SendEnded):
            if operation.topic != topic:
                return None
            if operation.outcome is Outcome.OK and self._written.get(operation.value) != name:
                return operation._replace(
                    topic=name, outcome=Outcome.INFO, offset=NO_OFFSET, leader_epoch=NO_EPOCH
                )
            return operation._replace(topic=name)
        assert not isinstance(operation, PollEnded) or "@" in operation.topic
        return operation if getattr(operation, "topic", None) == name else None
