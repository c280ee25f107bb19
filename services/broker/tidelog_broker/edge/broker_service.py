"""BrokerService: requests of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import grpc.aio

from tidelog.batch import NO_SEQUENCE
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET, Acks, OffsetPosition, TopicPartition
from tidelog.request_bounds import MAX_DESCRIBED_PRODUCERS
from tidelog.rpc.abort import abort
from tidelog.rpc.admission import answer_of_call
from tidelog.rpc.detached_records import AnyProduce, DetachedProduce, batches_of
from tidelog.rpc.wire import batch_to_wire, error_to_wire
from tidelog.v1 import broker_pb2 as pb
from tidelog.v1 import broker_pb2_grpc
from tidelog_broker.broker import Broker
from tidelog_broker.core.partition.producer_state import CommittedProducer
from tidelog_broker.edge.topic_metadata import TopicMetadata
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.metrics.request_meter import (
    FetchCall,
    ListOffsetsCall,
    ProduceCall,
    ProducerIdCall,
)
from tidelog_broker.requests.consumer_fetch import FetchEntry, FetchOutcome, FetchWait
from tidelog_broker.requests.describe_producers import (
    DescribeEntry,
    DescribeOutcome,
    DescribeProducers,
    Fence,
    Page,
)
from tidelog_broker.requests.list_offsets import ListOffsetsEntry
from tidelog_broker.requests.produce import ProduceEntry, ProduceOutcome
from tidelog_broker.requests.producer_ids import GivenProducer
from tidelog_runtime.cooperative import (
    ITEMS_PER_SLICE,
    QUICK_ITEMS_PER_SLICE,
    extend_yielding,
    map_yielding,
)

# Each search reads and checks a batch.
SEARCHES_PER_TURN = 4
# Partitions of the topics in a Metadata answer. Copying so many takes a millisecond or two.
PARTITIONS_PER_TURN = 1_000

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class BrokerService(broker_pb2_grpc.BrokerServiceServicer):
    def __init__(
        self,
        produce: ProduceCall,
        fetch: FetchCall,
        list_offsets: ListOffsetsCall,
        producer_ids: ProducerIdCall,
        describe_producers: DescribeProducers,
        cache: MetadataCache,
    ) -> None:
        self._produce = produce
        self._fetch = fetch
        self._list_offsets = list_offsets
        self._producer_ids = producer_ids
        self._describe_producers = describe_producers
        self._cache = cache
        self._topics = TopicMetadata(cache)

    async def Produce(  # noqa: N802
        self, request: AnyProduce, context: _Context
    ) -> pb.ProduceResponse:
        message = request.message if isinstance(request, DetachedProduce) else request
        entries = [
            ProduceEntry(TopicPartition(p.topic, p.partition), p.topic_id, batches)
            for p, batches in zip(message.partitions, batches_of(request), strict=True)
        ]
        try:
            acks = _acks(message.acks)
            outcomes = await self._produce(entries, acks, message.timeout_ms)
        except TidelogError as error:
            await abort(context, error)
        if acks is Acks.NONE:
            return pb.ProduceResponse(
                partitions=[
                    pb.ProducePartitionResult(
                        topic=e.name.topic, partition=e.name.partition, base_offset=NO_OFFSET
                    )
                    for e in entries
                ]
            )
        return pb.ProduceResponse(
            partitions=[
                _produced(entry, outcome) for entry, outcome in zip(entries, outcomes, strict=True)
            ]
        )

    async def Fetch(  # noqa: N802
        self, request: pb.FetchRequest, context: _Context
    ) -> pb.FetchResponse:
        try:
            _require_fetchable(request)
        except TidelogError as error:
            await abort(context, error)
        entries = await map_yielding(_fetch_entry, request.partitions)
        wait = FetchWait(
            request.max_wait_ms, request.min_bytes, request.max_bytes, answer_of_call()
        )
        try:
            outcomes = await self._fetch(entries, wait)
        except TidelogError as error:
            await abort(context, error)
        answered = zip(entries, outcomes, strict=True)
        return pb.FetchResponse(partitions=await map_yielding(_fetched_pair, answered))

    async def ListOffsets(  # noqa: N802
        self,
        request: pb.ListOffsetsRequest,
        context: _Context,  # noqa: ARG002
    ) -> pb.ListOffsetsResponse:
        # Searches run concurrently, because some may have to wait for the disk, but only a few at a
        # time, because each takes the event loop some time. Equal requests share one search.
        found: dict[tuple[object, ...], pb.ListOffsetsPartitionResult] = {}
        keys = await map_yielding(_search_key, request.partitions, QUICK_ITEMS_PER_SLICE)
        searches = list(dict(zip(keys, request.partitions, strict=True)).items())
        for first in range(0, len(searches), SEARCHES_PER_TURN):
            some = searches[first : first + SEARCHES_PER_TURN]
            results = await asyncio.gather(*(self._list_one(wire) for _, wire in some))
            found.update(zip((key for key, _ in some), results, strict=True))
            await asyncio.sleep(0)
        return pb.ListOffsetsResponse(partitions=[found[key] for key in keys])

    async def _list_one(self, wire: pb.ListOffsetsPartition) -> pb.ListOffsetsPartitionResult:
        name = TopicPartition(wire.topic, wire.partition)
        try:
            found = await self._list_offsets(
                ListOffsetsEntry(
                    name,
                    wire.topic_id,
                    wire.current_leader_epoch,
                    _position(wire.position),
                    wire.timestamp_ms,
                )
            )
        except TidelogError as error:
            return pb.ListOffsetsPartitionResult(
                topic=wire.topic,
                partition=wire.partition,
                error=error_to_wire(error),
                offset=NO_OFFSET,
                timestamp_ms=-1,
            )
        return pb.ListOffsetsPartitionResult(
            topic=wire.topic,
            partition=wire.partition,
            offset=found.offset,
            timestamp_ms=found.timestamp_ms,
            leader_epoch=found.leader_epoch,
        )

    async def Metadata(  # noqa: N802
        self,
        request: pb.MetadataRequest,
        context: _Context,  # noqa: ARG002
    ) -> pb.MetadataResponse:
        cache = self._cache
        response = pb.MetadataResponse(
            cluster_id=cache.cluster_id,
            revision=cache.revision,
            feature_level=cache.feature_level,
            brokers=[
                pb.BrokerEndpoint(
                    broker_id=broker_id,
                    address=live.registration.address,
                    rack=live.registration.rack,
                    broker_epoch=live.broker_epoch,
                    state=live.registration.state,
                    version=live.registration.version,
                )
                for broker_id, live in sorted(cache.brokers.items())
            ],
            controllers=[
                pb.ControllerProcess(
                    controller_id=controller_id,
                    address=process.address,
                    started_at_ms=process.started_at_ms,
                    version=process.version,
                )
                for controller_id, process in sorted(cache.controllers.items())
            ],
        )
        if cache.controller is not None:
            response.controller.CopyFrom(
                pb.ControllerEndpoint(
                    controller_id=cache.controller.controller_id,
                    address=cache.controller.address,
                    controller_epoch=cache.controller_epoch,
                )
            )
        if not request.cluster_only:
            # Each topic once: otherwise a request of a few kB could have an answer of hundreds of
            # MB.
            wanted = dict.fromkeys(request.topics) or sorted(cache.topics)
            await _add_topics(response, wanted, self._topics, short=request.without_partitions)
        return response

    async def InitProducerId(  # noqa: N802
        self, request: pb.InitProducerIdRequest, context: _Context
    ) -> pb.InitProducerIdResponse:
        try:
            given = await self._given_producer(request)
        except TidelogError as error:
            if error.code is ErrorCode.INVALID_REQUEST:
                await abort(context, error)
            return pb.InitProducerIdResponse(error=error_to_wire(error))
        return pb.InitProducerIdResponse(
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            partition_counts=given.partition_counts,
        )

    async def _given_producer(self, request: pb.InitProducerIdRequest) -> GivenProducer:
        if not request.HasField("named_epoch"):
            return await self._producer_ids(request.producer_name, None, {})
        named = request.named_epoch
        if request.producer_name:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"producer_name {request.producer_name[:200]!r} beside a named_epoch, which has a "
                "name of its own: leave one of them out",
            )
        return await self._producer_ids(
            named.producer_name, named.producer_epoch, dict(named.partition_counts)
        )

    async def DescribeProducers(  # noqa: N802
        self, request: pb.DescribeProducersRequest, context: _Context
    ) -> pb.DescribeProducersResponse:
        entries = [
            DescribeEntry(TopicPartition(p.topic, p.partition), p.topic_id)
            for p in request.partitions
        ]
        fence = None
        if request.HasField("fence"):
            wire = request.fence
            fence = Fence(wire.producer_id, wire.producer_epoch, wire.timeout_ms)
        page = Page(min(request.page_size, MAX_DESCRIBED_PRODUCERS), request.from_producer_id)
        try:
            outcomes = await self._describe_producers.handle(
                entries, request.producer_ids, fence, page
            )
        except TidelogError as error:
            await abort(context, error)
        return await _described_all(entries, outcomes)


def client_service(broker: Broker) -> BrokerService:
    return BrokerService(
        broker.produce.handle,
        broker.consumer_fetch.handle,
        broker.list_offsets.handle,
        broker.producer_ids.handle,
        broker.describe_producers,
        broker.cache,
    )


def _acks(wire: int) -> Acks:
    try:
        return Acks(wire)
    except ValueError:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"acks is {wire}; set it to ACKS_NONE, ACKS_LEADER or ACKS_ALL",
        ) from None


def _position(wire: int) -> OffsetPosition:
    try:
        return OffsetPosition(wire)
    except ValueError:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"position is {wire}; set it to EARLIEST, LATEST or TIMESTAMP",
        ) from None


def _search_key(wire: pb.ListOffsetsPartition) -> tuple[object, ...]:
    return (
        wire.topic,
        wire.topic_id,
        wire.partition,
        wire.current_leader_epoch,
        wire.position,
        wire.timestamp_ms,
    )


def _require_fetchable(request: pb.FetchRequest) -> None:
    if len({(p.topic, p.partition) for p in request.partitions}) < len(request.partitions):
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            "a partition appears twice in one Fetch request; name each once",
        )
    for field in ("max_wait_ms", "min_bytes", "max_bytes"):
        if getattr(request, field) < 0:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{field} is {getattr(request, field)}; it must be 0 or more",
            )


def _produced(entry: ProduceEntry, outcome: ProduceOutcome) -> pb.ProducePartitionResult:
    name = entry.name
    if outcome.appended is None:
        assert outcome.error is not None
        return pb.ProducePartitionResult(
            topic=name.topic,
            partition=name.partition,
            error=error_to_wire(outcome.error),
            base_offset=NO_OFFSET,
        )
    appended = outcome.appended
    return pb.ProducePartitionResult(
        topic=name.topic,
        partition=name.partition,
        base_offset=appended.base_offset,
        leader_epoch=appended.leader_epoch,
        append_time_ms=appended.append_time_ms,
        log_start_offset=outcome.log_start_offset,
    )


def _fetch_entry(wire: pb.FetchPartition) -> FetchEntry:
    return FetchEntry(
        TopicPartition(wire.topic, wire.partition),
        wire.topic_id,
        wire.current_leader_epoch,
        wire.fetch_offset,
        wire.max_bytes,
    )


def _fetched_pair(pair: tuple[FetchEntry, FetchOutcome]) -> pb.FetchPartitionResult:
    return _fetched(*pair)


def _fetched(entry: FetchEntry, outcome: FetchOutcome) -> pb.FetchPartitionResult:
    result = pb.FetchPartitionResult(
        topic=entry.name.topic, partition=entry.name.partition, high_watermark=NO_OFFSET
    )
    if outcome.error is not None:
        result.error.CopyFrom(error_to_wire(outcome.error))
    answer = outcome.answer
    if answer is not None:
        result.high_watermark = answer.high_watermark
        result.log_start_offset = answer.log_start_offset
        result.leader_epoch = answer.leader_epoch
        result.batches.extend(batch_to_wire(batch) for batch in answer.batches)
    return result


async def _add_topics(
    response: pb.MetadataResponse, names: Iterable[str], topics: TopicMetadata, *, short: bool
) -> None:
    """Adds topics, and yields after PARTITIONS_PER_TURN partitions, which are built, copied and
    serialized.

    `short`: without partitions."""
    partitions = 0
    for name in names:
        # Finding that a topic is unchanged costs about as much as ten of its partitions.
        partitions += 10
        if short:
            response.topics.append(topics.without_partitions(name))
        else:
            partitions += await topics.add_to(response, name)
        if partitions >= PARTITIONS_PER_TURN:
            partitions = 0
            await asyncio.sleep(0)


async def _described_all(
    entries: Sequence[DescribeEntry], outcomes: Sequence[DescribeOutcome]
) -> pb.DescribeProducersResponse:
    """Builds the response in place: adding a finished message would copy it again."""
    response = pb.DescribeProducersResponse()
    for position, (entry, outcome) in enumerate(zip(entries, outcomes, strict=True), 1):
        topic, partition = entry.name
        result = response.partitions.add(topic=topic, partition=partition)
        if isinstance(outcome, TidelogError):
            result.error.CopyFrom(error_to_wire(outcome))
        else:
            await extend_yielding(
                result.producers, _producer_state, outcome.producers, QUICK_ITEMS_PER_SLICE
            )
            if outcome.next_id is not None:
                result.next_producer_id = outcome.next_id
        if position % ITEMS_PER_SLICE == 0:
            await asyncio.sleep(0)
    return response


def _producer_state(producer: CommittedProducer) -> pb.ProducerState:
    state = pb.ProducerState(**producer._asdict())
    if producer.epoch_start_sequence == NO_SEQUENCE:
        state.ClearField("epoch_start_sequence")
    return state
