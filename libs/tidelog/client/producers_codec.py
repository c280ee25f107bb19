"""InitProducerId and DescribeProducers requests and responses on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.client.connections import BrokerApi
from tidelog.client.leader_queries import LeaderAnswers, LedPartitions
from tidelog.client.request_fields import built
from tidelog.client.request_parts import in_parts, number_bytes
from tidelog.client.sequences import Identity
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, TopicPartition
from tidelog.request_bounds import MAX_DESCRIBED_PRODUCERS
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import broker_pb2

# Maximum wait of a broker for the metadata store, and of a fence for its replicas.
IDENTITY_TIMEOUT_MS = 2_000
# An answer may arrive this much later than the time limit of the broker.
ANSWER_GRACE_MS = 1_000
# Fields that hold the partitions, producer ids and topics of one request.
PARTITIONS_FIELD = "tidelog.v1.DescribeProducersRequest.partitions"
PRODUCER_IDS_FIELD = "tidelog.v1.DescribeProducersRequest.producer_ids"
COUNTS_FIELD = "tidelog.v1.NamedEpoch.partition_counts"


class ProducerPosition(NamedTuple):
    """Committed position of a producer in one partition.

    - `last_sequence`: of its last record; -1: none is committed.
    - `epoch_start_sequence`: first sequence of its epoch in the partition; None: not known.
    - `last_append_time_ms`: milliseconds since 1970 (UTC).
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_append_time_ms: int
    epoch_start_sequence: int | None = None


Positions = LeaderAnswers[list[ProducerPosition]]


class TakenEpoch(NamedTuple):
    """An epoch of a name. `partition_counts`: by topic, the number of partitions that all holders
    place records on."""

    identity: Identity
    partition_counts: Mapping[str, int]


async def init_producer_id(broker: BrokerApi, name: str, epoch: int | None = None) -> Identity:
    """Returns a new id, or the id of a name in its next epoch or in `epoch`.

    Raises `TidelogError` and `UnreachableError`; a name's epoch may have increased nevertheless.
    INVALID_REQUEST if a broker of an older release does not know epochs in requests; it has given
    the name none."""
    return (await take_epoch(broker, name, epoch, {})).identity


async def take_epoch(
    broker: BrokerApi,
    name: str,
    epoch: int | None,
    partition_counts: Mapping[str, int],
    timeout_ms: int = IDENTITY_TIMEOUT_MS,
) -> TakenEpoch:
    """As `init_producer_id`. `partition_counts`: by topic, as known here; a number that another
    holder of the epoch has reported before takes precedence."""
    request = built(broker_pb2.InitProducerIdRequest, producer_name=name)
    if epoch is not None:
        named = built(
            broker_pb2.NamedEpoch,
            producer_name=name,
            producer_epoch=epoch,
            partition_counts=partition_counts,
        )
        request = broker_pb2.InitProducerIdRequest(named_epoch=named)
    answer = await broker.init_producer_id(request, timeout_ms)
    if answer.HasField("error"):
        raise error_from_wire(answer.error)
    if epoch is not None and answer.producer_id < FIRST_NAMED_PRODUCER_ID:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"a broker did not give {name!r} epoch {epoch}, which was requested: it runs an "
            "older release without named producers; upgrade all brokers first",
        )
    identity = Identity(answer.producer_id, answer.producer_epoch)
    return TakenEpoch(identity, dict(answer.partition_counts))


async def describe_many_producers(
    broker: BrokerApi,
    requested: LedPartitions,
    producer_ids: Sequence[int],
    fence: Identity | None = None,
) -> Positions:
    """As `describe_producers`, for any number of producer ids: one request after another."""
    found: dict[TopicPartition, list[ProducerPosition] | TidelogError] = {}
    for part in in_parts(dict.fromkeys(producer_ids), PRODUCER_IDS_FIELD, number_bytes):
        for partition, _, positions in await describe_producers(broker, requested, part, fence):
            before = found.get(partition, [])
            if isinstance(before, TidelogError):
                continue
            found[partition] = (
                positions if isinstance(positions, TidelogError) else [*before, *positions]
            )
    return [(partition, leader, found[partition]) for partition, leader in requested]


async def describe_producers(
    broker: BrokerApi,
    requested: LedPartitions,
    producer_ids: Sequence[int],
    fence: Identity | None = None,
) -> Positions:
    """Returns the producers of one leader's partitions, in the order of `requested`.

    Partitions and producer ids must fit into one request; the answer may have several pages.
    `fence`: before it answers, the leader begins to reject older epochs of this producer. Raises
    `TidelogError` if the entire request is rejected, and `UnreachableError`."""
    found: dict[TopicPartition, list[ProducerPosition]] = {}
    failed: dict[TopicPartition, TidelogError] = {}
    # Partitions still to be queried, by the first producer id to return.
    pending = {0: list(requested)}
    while pending:
        from_id = min(pending)
        some = pending.pop(from_id)
        request = _request(some, producer_ids, fence, from_id)
        answer = await broker.describe_producers(request, IDENTITY_TIMEOUT_MS + ANSWER_GRACE_MS)
        results = {TopicPartition(r.topic, r.partition): r for r in answer.partitions}
        for partition, leader in some:
            result = results.get(partition)
            if result is None:
                failed[partition] = TidelogError(
                    ErrorCode.INTERNAL,
                    f"{leader.address} answered without a result for {partition}",
                )
            elif result.HasField("error"):
                failed[partition] = error_from_wire(result.error)
            else:
                found.setdefault(partition, []).extend(map(_position, result.producers))
                if result.HasField("next_producer_id"):
                    pending.setdefault(result.next_producer_id, []).append((partition, leader))
        if len(pending.get(from_id, [])) == len(some):
            raise TidelogError(
                ErrorCode.INTERNAL, "a broker's answer has no part of what was requested"
            )
    return [(p, leader, failed[p] if p in failed else found[p]) for p, leader in requested]


def _request(
    requested: LedPartitions, producer_ids: Sequence[int], fence: Identity | None, from_id: int
) -> broker_pb2.DescribeProducersRequest:
    request = built(
        broker_pb2.DescribeProducersRequest,
        producer_ids=producer_ids,
        page_size=MAX_DESCRIBED_PRODUCERS,
        from_producer_id=from_id,
    )
    if fence is not None:
        request.fence.CopyFrom(
            built(
                broker_pb2.ProducerFence,
                producer_id=fence.producer_id,
                producer_epoch=fence.producer_epoch,
                timeout_ms=IDENTITY_TIMEOUT_MS,
            )
        )
    for (topic, number), leader in requested:
        request.partitions.add(topic=topic, partition=number, topic_id=leader.topic_id)
    return request


def _position(wire: broker_pb2.ProducerState) -> ProducerPosition:
    return ProducerPosition(
        wire.producer_id,
        wire.producer_epoch,
        wire.last_sequence,
        wire.last_append_time_ms,
        wire.epoch_start_sequence if wire.HasField("epoch_start_sequence") else None,
    )
