"""A cluster in memory. Every broker serves the same logs; tests define the leaders, dead brokers
and faults. `start` puts the cluster behind real gRPC servers on loopback. `MemoryConnections`
reaches it without servers, for tests on virtual time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc.aio

from tidelog.batch import stamp
from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import Batch, LeaderHint, TopicPartition
from tidelog.record_batch import decode
from tidelog.rpc.channels import new_server
from tidelog.rpc.detached_records import AnyProduce, DetachedProduce
from tidelog.rpc.trace_context import trace_id_of
from tidelog.rpc.wire import batch_from_wire, batch_to_wire, error_to_wire
from tidelog.v1 import (
    broker_pb2,
    broker_pb2_grpc,
    inspect_pb2_grpc,
)
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.telemetry.inspect_service import InspectServicer
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.client.fake_inspection import FakeInspection
from unit.client.fake_producer_state import (
    FakeProducerIds,
    check_sequences,
    fence,
    last_header,
    last_sequence,
)

if TYPE_CHECKING:
    from unit.client.fake_controller import FakeController

# Test servers have no requests to finish.
NO_GRACE = None


@dataclass
class FakePartition:
    leader: int
    leader_epoch: int = 1
    batches: list[Batch] = field(default_factory=list)
    log_start: int = 0
    unclean_leader_epoch: int = -1
    create_revision: int = 1
    # The epochs below which a named producer is fenced.
    fences: dict[int, int] = field(default_factory=dict)
    # The first offset, and one past the last, of unreadable records.
    damaged: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else 0

    def values(self) -> list[bytes | None]:
        return [value for batch in self.batches for value in decode(batch).values]


@dataclass
class FakeTopic:
    topic_id: str
    partitions: list[FakePartition]
    config: dict[str, str] = field(default_factory=dict)
    create_revision: int = 1
    revision: int = 1


ServicerContext = grpc.aio.ServicerContext[Any, Any]


@dataclass
class Late:
    """The caller gets no answer, but the broker carries out the request after `ms`."""

    ms: int


@dataclass
class Unanswered:
    """The request is carried out at once, and its connection breaks after `ms`."""

    ms: int


@dataclass
class Slow:
    """The request takes `ms` to arrive; later requests overtake it."""

    ms: int


RequestedPartition = (
    broker_pb2.ProducePartition
    | broker_pb2.FetchPartition
    | broker_pb2.ListOffsetsPartition
    | broker_pb2.DescribeProducersPartition
)
Script = (
    TidelogError | grpc.StatusCode | Late | Unanswered | Slow | str
)  # "hang", "append, then die"


class FakeCluster:
    def __init__(self) -> None:
        self.brokers: dict[int, FakeBroker] = {}
        self.topics: dict[str, FakeTopic] = {}
        self.controller: FakeController | None = None
        self.ids = FakeProducerIds()
        self.append_time_ms = 1_000
        # The revision of the metadata store that every broker has reached.
        self.revision = 0
        # Names of all topics, deleted ones included.
        self._names: set[str] = set()

    def in_memory(self, brokers: int = 1) -> FakeCluster:
        """Without servers, for `MemoryConnections`."""
        for broker_id in range(brokers):
            self.brokers[broker_id] = FakeBroker(self, broker_id)
            self.brokers[broker_id].address = f"broker-{broker_id}:1"
        return self

    async def start(self, brokers: int = 1) -> FakeCluster:
        for broker_id in range(brokers):
            self.brokers[broker_id] = await FakeBroker(self, broker_id).start()
        return self

    def bootstrap(self) -> list[str]:
        return [broker.address for broker in self.brokers.values()]

    def create(self, topic: str, leaders: list[int], **config: str) -> FakeTopic:
        """Creates a topic; an existing name is replaced by another topic."""
        partitions = [FakePartition(leader) for leader in leaders]
        self.revision += 1
        topic_id = f"id-of-{topic}" + (f"-{self.revision}" if topic in self._names else "")
        self._names.add(topic)
        self.topics[topic] = FakeTopic(
            topic_id, partitions, config, create_revision=self.revision, revision=self.revision
        )
        return self.topics[topic]

    def resize(self, topic: str, leaders: list[int]) -> None:
        """Adds partitions with these leaders, or removes those beyond that number."""
        found = self.topics[topic]
        found.partitions[len(leaders) :] = []
        found.partitions += [FakePartition(leader) for leader in leaders[len(found.partitions) :]]
        self.revision += 1
        found.revision = self.revision

    def delete(self, topic: str) -> None:
        del self.topics[topic]
        self.revision += 1

    def partition(self, topic: str, partition: int = 0) -> FakePartition:
        return self.topics[topic].partitions[partition]

    def elect(self, topic: str, partition: int, leader: int) -> None:
        chosen = self.partition(topic, partition)
        chosen.leader = leader
        chosen.leader_epoch += 1

    def elect_uncleanly(self, topic: str, partition: int, leader: int, end: int) -> None:
        """The new leader's log ends at `end`, which has to be a boundary of batches."""
        self.elect(topic, partition, leader)
        chosen = self.partition(topic, partition)
        chosen.unclean_leader_epoch = chosen.leader_epoch
        chosen.batches = [b for b in chosen.batches if b.header.next_offset <= end]

    async def close(self) -> None:
        if self.controller is not None:
            await self.controller.close()
        await asyncio.gather(*(broker.close() for broker in self.brokers.values()))


def attached(request: AnyProduce) -> broker_pb2.ProduceRequest:
    """Inserts the detached records of large batches."""
    if not isinstance(request, DetachedProduce):
        return request
    for (partition, batch), records in request.records.items():
        request.message.partitions[partition].batches[batch].records = bytes(records)
    return request.message


class FakeBroker(broker_pb2_grpc.BrokerServiceServicer):
    """Faults and requests are recorded by RPC.

    - `script`: the faults of the next calls. `seen`: every request.
    - `metadata_of`: replaces the metadata that this broker returns (stale, or none).
    - `outdated`: how many batches of a partition this deposed broker knows, until it has to fence.
    - `names_epochs`: whether the broker's release supports the epoch in InitProducerId.
    """

    def __init__(self, cluster: FakeCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.address = ""
        self.alive = True
        self.script: dict[str, deque[Script]] = defaultdict(deque)
        self.seen: dict[str, list[object]] = defaultdict(list)
        self.traces: dict[str, list[str]] = defaultdict(list)  # trace ids by RPC
        self.hint = True
        self.metadata_of: Callable[[], broker_pb2.MetadataResponse] | None = None
        self.outdated: dict[tuple[str, int], int] = {}
        self.names_epochs = True
        self.gate = asyncio.Event()
        self.gate.set()
        self.state_changes = StateChangeLog(f"broker-{broker_id}", SystemClock())
        self._server: grpc.aio.Server | None = None

    async def start(self) -> FakeBroker:
        self._server = new_server()
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(self, self._server)
        inspect_pb2_grpc.add_InspectServiceServicer_to_server(
            InspectServicer(FakeInspection(self), self.state_changes), self._server
        )
        port = self._server.add_insecure_port(self.address or "127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        self.alive = True
        return self

    async def close(self) -> None:
        self.alive = False
        self.gate.set()
        if self._server is not None:
            await self._server.stop(NO_GRACE)
            self._server = None

    async def Produce(  # noqa: N802
        self, received: AnyProduce, context: ServicerContext
    ) -> broker_pb2.ProduceResponse:
        request = attached(received)
        self.seen["produce"].append(request)
        self.traces["produce"].append(trace_id_of(context.invocation_metadata()))
        scripted = self._next("produce")
        if scripted == "append, then die":
            scripted = Unanswered(0)
        if isinstance(scripted, Unanswered):
            for partition in request.partitions:
                self._append(partition, None)
            if scripted.ms:
                await asyncio.sleep(scripted.ms / 1000)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "died")
        if isinstance(scripted, Late):
            loop = asyncio.get_running_loop()
            for partition in request.partitions:
                loop.call_later(scripted.ms / 1000, self._append, partition, None)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost on its way")
        error = await self._play(scripted, context)
        await self.gate.wait()
        return broker_pb2.ProduceResponse(
            partitions=[self._append(partition, error) for partition in request.partitions]
        )

    def _append(
        self, entry: broker_pb2.ProducePartition, error: TidelogError | None
    ) -> broker_pb2.ProducePartitionResult:
        error = error or self._rejection(entry, -1)
        limit = self.cluster.topics[entry.topic].config if error is None else {}
        largest = max(len(batch.records) for batch in entry.batches)
        if error is None and largest > int(limit.get("max_batch_bytes", "1048576")):
            error = TidelogError(ErrorCode.BATCH_TOO_LARGE, f"{largest} bytes are too many")
        result = broker_pb2.ProducePartitionResult(
            topic=entry.topic, partition=entry.partition, base_offset=-1
        )
        if error is not None:
            result.error.CopyFrom(error_to_wire(error))
            return result
        partition = self.cluster.partition(entry.topic, entry.partition)
        verdict = check_sequences(
            partition.batches, partition.fences, [batch.header for batch in entry.batches]
        )
        if isinstance(verdict, TidelogError):
            result.error.CopyFrom(error_to_wire(verdict))
            return result
        if verdict is not None:
            result.base_offset = verdict.base_offset
            result.leader_epoch = verdict.leader_epoch
            result.append_time_ms = verdict.append_time_ms
            return result
        result.base_offset = partition.end
        result.leader_epoch = partition.leader_epoch
        result.append_time_ms = self.cluster.append_time_ms
        for wire in entry.batches:
            partition.batches.append(
                stamp(
                    batch_from_wire(wire),
                    base_offset=partition.end,
                    leader_epoch=partition.leader_epoch,
                    append_time_ms=self.cluster.append_time_ms,
                )
            )
        return result

    async def Fetch(  # noqa: N802
        self, request: broker_pb2.FetchRequest, context: ServicerContext
    ) -> broker_pb2.FetchResponse:
        self.seen["fetch"].append(request)
        self.traces["fetch"].append(trace_id_of(context.invocation_metadata()))
        error = await self._play(self._next("fetch"), context)
        await self.gate.wait()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.max_wait_ms / 1000
        while True:
            results = [self._read(entry, error) for entry in request.partitions]
            if any(r.batches or r.HasField("error") for r in results) or loop.time() > deadline:
                return broker_pb2.FetchResponse(partitions=results)
            await asyncio.sleep(0.005)

    def _read(
        self, entry: broker_pb2.FetchPartition, error: TidelogError | None
    ) -> broker_pb2.FetchPartitionResult:
        error = error or self._rejection(entry, entry.current_leader_epoch)
        result = broker_pb2.FetchPartitionResult(topic=entry.topic, partition=entry.partition)
        topic = self.cluster.topics.get(entry.topic)
        if topic is not None and entry.partition < len(topic.partitions):
            partition = topic.partitions[entry.partition]
            result.leader_epoch = partition.leader_epoch
            result.high_watermark = partition.end
            result.log_start_offset = partition.log_start
            if not partition.log_start <= entry.fetch_offset <= partition.end:
                error = error or TidelogError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")
            error = error or self._damage(partition, entry.fetch_offset)
        if error is not None:
            result.error.CopyFrom(error_to_wire(error))
            return result
        size = 0
        for batch in partition.batches:
            if batch.header.next_offset > entry.fetch_offset:
                if result.batches and size + len(batch.records) > entry.max_bytes:
                    break
                if self._damage(partition, batch.header.base_offset) is not None:
                    break
                result.batches.append(batch_to_wire(batch))
                size += len(batch.records)
        return result

    @staticmethod
    def _damage(partition: FakePartition, offset: int) -> RecordsDamagedError | None:
        for first, following in partition.damaged:
            if first <= offset < following:
                return RecordsDamagedError(
                    ErrorCode.RECORDS_DAMAGED,
                    f"the records at offsets {first} to {following - 1} were damaged",
                    first_offset=first,
                    next_offset=following,
                )
        return None

    async def ListOffsets(  # noqa: N802
        self, request: broker_pb2.ListOffsetsRequest, context: ServicerContext
    ) -> broker_pb2.ListOffsetsResponse:
        self.seen["list_offsets"].append(request)
        error = await self._play(self._next("list_offsets"), context)
        return broker_pb2.ListOffsetsResponse(
            partitions=[self._offset(entry, error) for entry in request.partitions]
        )

    def _offset(
        self, entry: broker_pb2.ListOffsetsPartition, error: TidelogError | None
    ) -> broker_pb2.ListOffsetsPartitionResult:
        error = error or self._rejection(entry, entry.current_leader_epoch)
        result = broker_pb2.ListOffsetsPartitionResult(
            topic=entry.topic, partition=entry.partition, offset=-1, timestamp_ms=-1
        )
        if error is not None:
            result.error.CopyFrom(error_to_wire(error))
            return result
        partition = self.cluster.partition(entry.topic, entry.partition)
        result.leader_epoch = partition.leader_epoch
        if entry.position == broker_pb2.OFFSET_POSITION_EARLIEST:
            result.offset = partition.log_start
        elif entry.position == broker_pb2.OFFSET_POSITION_LATEST:
            result.offset = partition.end
        else:
            for batch in partition.batches:
                if batch.header.max_timestamp_ms >= entry.timestamp_ms:
                    result.offset = batch.header.base_offset
                    break
        return result

    async def Metadata(  # noqa: N802
        self, request: broker_pb2.MetadataRequest, context: ServicerContext
    ) -> broker_pb2.MetadataResponse:
        self.seen["metadata"].append(request)
        await self._play(self._next("metadata"), context)
        if self.metadata_of is not None:
            return self.metadata_of()
        return self.metadata(request)

    def metadata(self, request: broker_pb2.MetadataRequest) -> broker_pb2.MetadataResponse:
        answer = broker_pb2.MetadataResponse(cluster_id="fake", revision=self.cluster.revision)
        controller = self.cluster.controller
        if controller is not None:
            answer.controller.controller_id = controller.controller_id
            answer.controller.address = controller.address
            answer.controller.controller_epoch = controller.epoch
        for broker in self.cluster.brokers.values():
            if broker.alive:
                answer.brokers.add(
                    broker_id=broker.broker_id,
                    address=broker.address,
                    broker_epoch=1,
                    state="running",
                )
        names = [] if request.cluster_only else request.topics or list(self.cluster.topics)
        for name in names:
            topic = self.cluster.topics.get(name)
            if topic is None:
                unknown = TidelogError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist"
                )
                answer.topics.add(name=name, error=error_to_wire(unknown))
                continue
            described = answer.topics.add(
                name=name,
                topic_id=topic.topic_id,
                config=topic.config,
                replication_factor=1,
                create_revision=topic.create_revision,
                revision=topic.revision,
                partition_count=len(topic.partitions),
            )
            if request.without_partitions:
                continue
            for number, partition in enumerate(topic.partitions):
                described.partitions.add(
                    partition=number,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replicas=[partition.leader],
                    isr=[partition.leader],
                    unclean_leader_epoch=partition.unclean_leader_epoch,
                    min_isr=1,
                    create_revision=partition.create_revision,
                )
        return answer

    async def InitProducerId(  # noqa: N802
        self, request: broker_pb2.InitProducerIdRequest, context: ServicerContext
    ) -> broker_pb2.InitProducerIdResponse:
        self.seen["init_producer_id"].append(request)
        error = await self._play(self._next("init_producer_id"), context)
        if error is not None:
            return broker_pb2.InitProducerIdResponse(error=error_to_wire(error))
        name, epoch, counts = request.producer_name, None, {}
        if request.HasField("named_epoch") and self.names_epochs:
            named = request.named_epoch
            name, epoch = named.producer_name, named.producer_epoch
            counts = dict(named.partition_counts)
        taken = self.cluster.ids.take(name, epoch)
        if isinstance(taken, TidelogError):
            return broker_pb2.InitProducerIdResponse(error=error_to_wire(taken))
        producer_id, given = taken
        held = self.cluster.ids.counts[producer_id, given]
        for topic, count in counts.items():
            held.setdefault(topic, count)
        return broker_pb2.InitProducerIdResponse(
            producer_id=producer_id,
            producer_epoch=given,
            partition_counts={t: held[t] for t in counts},
        )

    async def DescribeProducers(  # noqa: N802
        self, request: broker_pb2.DescribeProducersRequest, context: ServicerContext
    ) -> broker_pb2.DescribeProducersResponse:
        self.seen["describe_producers"].append(request)
        error = await self._play(self._next("describe_producers"), context)
        return broker_pb2.DescribeProducersResponse(
            partitions=[self._producers(request, entry, error) for entry in request.partitions]
        )

    def _producers(
        self,
        request: broker_pb2.DescribeProducersRequest,
        entry: broker_pb2.DescribeProducersPartition,
        error: TidelogError | None,
    ) -> broker_pb2.DescribeProducersPartitionResult:
        error = error or self._rejection(entry, -1)
        result = broker_pb2.DescribeProducersPartitionResult(
            topic=entry.topic, partition=entry.partition
        )
        known = self.outdated.get((entry.topic, entry.partition))
        if error is None and known is not None and request.HasField("fence"):
            del self.outdated[entry.topic, entry.partition]
            error = TidelogError(ErrorCode.LEADER_CHANGED, "deposed since")
        if error is None:
            partition = self.cluster.partition(entry.topic, entry.partition)
            error = fence(partition.batches, partition.fences, request)
        if error is not None:
            result.error.CopyFrom(error_to_wire(error))
            return result
        batches = partition.batches[:known]
        for producer_id in sorted({b.header.producer_id for b in batches} - {-1}):
            if producer_id in (request.producer_ids or (producer_id,)):
                last = last_header(batches, producer_id)
                assert last is not None
                of_epoch = (
                    b.header
                    for b in batches
                    if b.header[9:11] == (producer_id, last.producer_epoch)
                )
                result.producers.add(
                    producer_id=producer_id,
                    producer_epoch=last.producer_epoch,
                    last_sequence=last_sequence(last),
                    last_append_time_ms=last.append_time_ms,
                    epoch_start_sequence=next(of_epoch).base_sequence,
                )
        return result

    def _next(self, rpc: str) -> Script | None:
        return self.script[rpc].popleft() if self.script[rpc] else None

    async def _play(self, scripted: Script | None, context: ServicerContext) -> TidelogError | None:
        if scripted == "hang":
            await asyncio.sleep(3600)
        if isinstance(scripted, Slow):
            await asyncio.sleep(scripted.ms / 1000)
        if isinstance(scripted, grpc.StatusCode):
            await context.abort(scripted, "scripted")
        return scripted if isinstance(scripted, TidelogError) else None

    def _rejection(self, entry: RequestedPartition, epoch: int) -> TidelogError | None:
        known = self.cluster.topics.get(entry.topic)
        if known is None or entry.partition >= len(known.partitions):
            return TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not known here")
        if entry.topic_id not in ("", known.topic_id):
            return TidelogError(ErrorCode.UNKNOWN_TOPIC_ID, "another topic has the name")
        chosen = known.partitions[entry.partition]
        if chosen.leader != self.broker_id:
            hint = None
            if self.hint and chosen.leader in self.cluster.brokers:
                address = self.cluster.brokers[chosen.leader].address
                hint = LeaderHint(chosen.leader, chosen.leader_epoch, address)
            return TidelogError(ErrorCode.NOT_LEADER, "not the leader", hint)
        if epoch not in (-1, chosen.leader_epoch):
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
            if epoch < chosen.leader_epoch:
                code = ErrorCode.FENCED_LEADER_EPOCH
            return TidelogError(code, "another epoch")
        return None


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic, number)
