"""The committed ends in the answers of leaders.

Readers get them beside records (the high watermark), and other clients by a request for the
latest offset. The library hides the high watermark from its users, and neither of its
interfaces returns the leader epoch; other clients see both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.model import NO_OFFSET, TopicPartition
from tidelog.v1 import broker_pb2


class Asked(NamedTuple):
    partition: TopicPartition
    topic_id: str


class Told(NamedTuple):
    partition: TopicPartition
    topic_id: str
    end: int
    leader_epoch: int


def ends_asked(request: object) -> Iterator[Asked]:
    if isinstance(request, broker_pb2.FetchRequest):
        for fetched in request.partitions:
            yield Asked(TopicPartition(fetched.topic, fetched.partition), fetched.topic_id)
    elif isinstance(request, broker_pb2.ListOffsetsRequest):
        for listed in request.partitions:
            if listed.position == broker_pb2.OFFSET_POSITION_LATEST:
                yield Asked(TopicPartition(listed.topic, listed.partition), listed.topic_id)


def ends_reported(request: object, answer: object) -> Iterator[Told]:
    """Yields the ends of the requested partitions; a leader that does not know an end omits it."""
    asked = dict(ends_asked(request))
    if isinstance(answer, broker_pb2.FetchResponse):
        for fetched in answer.partitions:
            partition = TopicPartition(fetched.topic, fetched.partition)
            if not fetched.HasField("error") and fetched.high_watermark != NO_OFFSET:
                yield Told(
                    partition, asked[partition], fetched.high_watermark, fetched.leader_epoch
                )
    elif isinstance(answer, broker_pb2.ListOffsetsResponse):
        for listed in answer.partitions:
            partition = TopicPartition(listed.topic, listed.partition)
            if partition in asked and not listed.HasField("error"):
                yield Told(partition, asked[partition], listed.offset, listed.leader_epoch)
