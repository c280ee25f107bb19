"""InitProducerId and DescribeProducers in their wire form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.client.ask_leaders import Answers, Asked
from tidelog.client.connections import BrokerApi
from tidelog.client.request_fields import built
from tidelog.client.sequences import Identity
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import broker_pb2

# How long a broker may wait for the metadata store, or a fence for its replicas.
IDENTITY_TIMEOUT_MS = 2_000
# An answer may come this much after the time that the broker was given.
ANSWER_GRACE_MS = 1_000


class ProducerPosition(NamedTuple):
    """How far a producer has come in one partition, as far as it is committed.
    `last_sequence` is that of its last record, -1 where none is committed;
    `last_append_time_ms` is in milliseconds since 1970 (UTC)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_append_time_ms: int


Told = Answers[list[ProducerPosition]]


async def init_producer_id(broker: BrokerApi, name: str) -> Identity:
    """An id that nobody else has, or, with a name, its id in the next epoch. Raises
    `TidelogError` and `UnreachableError`: then a named producer's epoch may have grown all
    the same."""
    request = built(broker_pb2.InitProducerIdRequest, producer_name=name)
    answer = await broker.init_producer_id(request, IDENTITY_TIMEOUT_MS)
    if answer.HasField("error"):
        raise error_from_wire(answer.error)
    return Identity(answer.producer_id, answer.producer_epoch)


async def describe_producers(
    broker: BrokerApi, asked: Asked, producer_ids: Sequence[int], fence: Identity | None = None
) -> Told:
    """What one leader tells of some of its partitions, in their order. `fence`: the leader
    refuses older epochs of this producer from now on, before it answers. Raises
    `TidelogError` for a refusal of the whole, and `UnreachableError`."""
    request = built(broker_pb2.DescribeProducersRequest, producer_ids=producer_ids)
    if fence is not None:
        request.fence.CopyFrom(
            built(
                broker_pb2.ProducerFence,
                producer_id=fence.producer_id,
                producer_epoch=fence.producer_epoch,
                timeout_ms=IDENTITY_TIMEOUT_MS,
            )
        )
    for (topic, number), leader in asked:
        request.partitions.add(topic=topic, partition=number, topic_id=leader.topic_id)
    answer = await broker.describe_producers(request, IDENTITY_TIMEOUT_MS + ANSWER_GRACE_MS)
    results = {TopicPartition(r.topic, r.partition): r for r in answer.partitions}
    told: Told = []
    for partition, leader in asked:
        result = results.get(partition)
        if result is None:
            missing = TidelogError(
                ErrorCode.INTERNAL, f"{leader.address} answered without a result for {partition}"
            )
            told.append((partition, leader, missing))
        elif result.HasField("error"):
            told.append((partition, leader, error_from_wire(result.error)))
        else:
            positions = [
                ProducerPosition(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.last_sequence,
                    producer.last_append_time_ms,
                )
                for producer in result.producers
            ]
            told.append((partition, leader, positions))
    return told
