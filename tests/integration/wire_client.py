"""Requests over the generated stubs, exactly as given.

The real client would reject some of them itself, or repeat them until they succeed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tidelog.model import NO_EPOCH, OffsetPosition
from tidelog.record_batch import decode, encode
from tidelog.rpc.channels import open_channel
from tidelog.rpc.wire import batch_from_wire, batch_to_wire
from tidelog.v1 import broker_pb2, errors_pb2, record_batch_pb2
from tidelog.v1.admin_pb2_grpc import AdminServiceStub
from tidelog.v1.broker_pb2_grpc import BrokerServiceStub

REQUEST_TIMEOUT_MS = 10_000
# Longer than the request's own timeout, so that the service's answer comes first.
CALL_TIMEOUT_SECONDS = 15.0
MAX_BYTES = 8 << 20

ErrorCode = errors_pb2.ErrorCode
WireBatch = record_batch_pb2.Batch


class WireClient:
    """One connection to one service."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self.broker = BrokerServiceStub(self._channel)
        self.admin = AdminServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._channel.close()

    async def produce(
        self,
        topic: str,
        partition: int,
        *batches: WireBatch,
        topic_id: str = "",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        acks: broker_pb2.Acks.ValueType = broker_pb2.ACKS_ALL,
    ) -> broker_pb2.ProducePartitionResult:
        entry = broker_pb2.ProducePartition(
            topic=topic, partition=partition, topic_id=topic_id, batches=batches
        )
        request = broker_pb2.ProduceRequest(acks=acks, timeout_ms=timeout_ms, partitions=[entry])
        answer = await self.broker.Produce(request, timeout=CALL_TIMEOUT_SECONDS)
        return answer.partitions[0]

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        known_epoch: int = NO_EPOCH,
        max_wait_ms: int = 0,
    ) -> broker_pb2.FetchPartitionResult:
        entry = broker_pb2.FetchPartition(
            topic=topic,
            partition=partition,
            current_leader_epoch=known_epoch,
            fetch_offset=offset,
            max_bytes=MAX_BYTES,
        )
        request = broker_pb2.FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=MAX_BYTES, partitions=[entry]
        )
        answer = await self.broker.Fetch(request, timeout=CALL_TIMEOUT_SECONDS)
        return answer.partitions[0]

    async def list_offsets(
        self, topic: str, partition: int, position: int = OffsetPosition.LATEST
    ) -> broker_pb2.ListOffsetsPartitionResult:
        entry = broker_pb2.ListOffsetsPartition(
            topic=topic,
            partition=partition,
            current_leader_epoch=NO_EPOCH,
            position=position,  # type: ignore[arg-type]  # the enums have equal values
        )
        request = broker_pb2.ListOffsetsRequest(partitions=[entry])
        answer = await self.broker.ListOffsets(request, timeout=CALL_TIMEOUT_SECONDS)
        return answer.partitions[0]

    async def end_offset(self, topic: str, partition: int) -> int:
        found = await self.list_offsets(topic, partition)
        assert not found.HasField("error"), found.error
        return found.offset

    async def metadata(self, topic: str) -> broker_pb2.TopicMetadata:
        request = broker_pb2.MetadataRequest(topics=[topic])
        answer = await self.broker.Metadata(request, timeout=CALL_TIMEOUT_SECONDS)
        return answer.topics[0]


def wire_batch(*values: bytes) -> WireBatch:
    return batch_to_wire(encode(list(values), timestamps_ms=time.time_ns() // 1_000_000))


def values_of(batches: Sequence[WireBatch]) -> list[bytes | None]:
    return [value for batch in batches for value in decode(batch_from_wire(batch)).values]


def assert_rejected(
    error: errors_pb2.Error, code: errors_pb2.ErrorCode.ValueType, *phrases: str
) -> None:
    """The code is the expected one, and the message contains each of these texts: what is wrong,
    and what would be right."""
    assert ErrorCode.Name(error.code) == ErrorCode.Name(code), error.message
    for phrase in phrases:
        assert phrase in error.message
