"""How the clients of a run reach brokers: through relays, noting details of answers that the client
library does not expose."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from faults.acknowledgers import Acknowledgers, Sequenced
from simulation.told_ends import ends_asked, ends_reported
from tidelog.client.admin_api import AdminApi
from tidelog.client.connections import BrokerApi, GrpcConnections
from tidelog.history import (
    NO_BROKER,
    HighWatermarkEnded,
    HighWatermarkInvoked,
    Operation,
    Outcome,
)
from tidelog.model import TopicPartition
from tidelog.rpc.channels import open_channel
from tidelog.v1 import broker_pb2

# The interval between two readings of committed ends of one broker by one client.
READING_INTERVAL_MS = 100

Write = Callable[[list[Operation]], None]


def routed(routes: Mapping[str, str]) -> GrpcConnections:
    """`routes`: where to connect instead of an advertised address."""
    return GrpcConnections(lambda address: open_channel(routes.get(address, address)))


class NotingConnections:
    def __init__(
        self,
        client: str,
        routes: Mapping[str, str],
        acknowledgers: Acknowledgers,
        write: Write,
        now_ms: Callable[[], int],
    ) -> None:
        self._inner = routed(routes)
        self._client = client
        self._acknowledgers = acknowledgers
        self._write = write
        self._now_ms = now_ms
        self._brokers: dict[str, _NotingBroker] = {}
        # As metadata responses name them.
        self.broker_ids: dict[str, int] = {}
        self._questions = 0

    def broker(self, address: str) -> BrokerApi:
        broker = self._brokers.get(address)
        if broker is None:
            broker = self._brokers[address] = _NotingBroker(
                self, self._inner.broker(address), address
            )
        return broker

    def controller(self, address: str) -> AdminApi:
        return self._inner.controller(address)

    async def close(self) -> None:
        await self._inner.close()

    def now_ms(self) -> int:
        return self._now_ms()

    def metadata_received(self, answer: broker_pb2.MetadataResponse) -> None:
        self.broker_ids.update({broker.address: broker.broker_id for broker in answer.brokers})

    def sent(self, request: broker_pb2.ProduceRequest) -> dict[TopicPartition, bool]:
        """For each partition, whether the batch is sent for the first time."""
        return {
            partition: self._acknowledgers.sent(batches)
            for partition, batches in _sequenced(request).items()
        }

    def acknowledged(
        self,
        address: str,
        first: Mapping[TopicPartition, bool],
        request: broker_pb2.ProduceRequest,
        answer: broker_pb2.ProduceResponse,
    ) -> None:
        batches = _sequenced(request)
        for answered in answer.partitions:
            partition = TopicPartition(answered.topic, answered.partition)
            if answered.HasField("error") or not batches.get(partition):
                continue
            broker_id = self.broker_ids.get(address, NO_BROKER) if first[partition] else NO_BROKER
            self._acknowledgers.acknowledged(
                batches[partition], answered.leader_epoch, answered.base_offset, broker_id
            )

    def invoked(self, request: object) -> str:
        """In the history each request is a client of its own, because several are in flight."""
        self._questions += 1
        request_id = f"{self._client}, question {self._questions}"
        now_ms = self._now_ms()
        self._write(
            [
                HighWatermarkInvoked(now_ms, request_id, *end.partition)
                for end in ends_asked(request)
            ]
        )
        return request_id

    def answered(self, request_id: str, request: object, answer: object) -> None:
        now_ms = self._now_ms()
        self._write(
            [
                HighWatermarkEnded(
                    now_ms,
                    request_id,
                    *answered.partition,
                    Outcome.OK,
                    answered.end,
                    answered.leader_epoch,
                )
                for answered in ends_reported(request, answer)
            ]
        )


def _sequenced(request: broker_pb2.ProduceRequest) -> dict[TopicPartition, list[Sequenced]]:
    found: dict[TopicPartition, list[Sequenced]] = {}
    for sent in request.partitions:
        partition = TopicPartition(sent.topic, sent.partition)
        found[partition] = [
            Sequenced(partition, batch.header.producer_id, batch.header.base_sequence)
            for batch in sent.batches
        ]
    return found


class _NotingBroker:
    def __init__(self, notes: NotingConnections, inner: BrokerApi, address: str) -> None:
        self._notes = notes
        self._inner = inner
        self._address = address
        self._next_reading_ms = 0

    async def produce(
        self, request: broker_pb2.ProduceRequest, timeout_ms: int
    ) -> broker_pb2.ProduceResponse:
        first = self._notes.sent(request)
        answer = await self._inner.produce(request, timeout_ms)
        self._notes.acknowledged(self._address, first, request, answer)
        return answer

    async def fetch(
        self, request: broker_pb2.FetchRequest, timeout_ms: int
    ) -> broker_pb2.FetchResponse:
        now_ms = self._notes.now_ms()
        if now_ms < self._next_reading_ms:
            return await self._inner.fetch(request, timeout_ms)
        self._next_reading_ms = now_ms + READING_INTERVAL_MS
        request_id = self._notes.invoked(request)
        answer = await self._inner.fetch(request, timeout_ms)
        self._notes.answered(request_id, request, answer)
        return answer

    async def list_offsets(
        self, request: broker_pb2.ListOffsetsRequest, timeout_ms: int
    ) -> broker_pb2.ListOffsetsResponse:
        request_id = self._notes.invoked(request)
        answer = await self._inner.list_offsets(request, timeout_ms)
        self._notes.answered(request_id, request, answer)
        return answer

    async def metadata(
        self, request: broker_pb2.MetadataRequest, timeout_ms: int
    ) -> broker_pb2.MetadataResponse:
        answer = await self._inner.metadata(request, timeout_ms)
        self._notes.metadata_received(answer)
        return answer

    async def init_producer_id(
        self, request: broker_pb2.InitProducerIdRequest, timeout_ms: int
    ) -> broker_pb2.InitProducerIdResponse:
        return await self._inner.init_producer_id(request, timeout_ms)

    async def describe_producers(
        self, request: broker_pb2.DescribeProducersRequest, timeout_ms: int
    ) -> broker_pb2.DescribeProducersResponse:
        return await self._inner.describe_producers(request, timeout_ms)
