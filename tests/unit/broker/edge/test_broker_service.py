"""BrokerService without a network: messages in, messages out."""

from dataclasses import replace
from typing import Any, NoReturn, cast

import grpc
import grpc.aio
import pytest

from doubles.memory_store import MemoryStore
from tidelog import record_batch
from tidelog.batch import is_fence, producer_crc32c
from tidelog.client.descriptions import topic_from_wire
from tidelog.errors import ErrorCode
from tidelog.model import Acks, Batch
from tidelog.record_batch import without_deltas
from tidelog.rpc.wire import batch_from_wire, batch_to_wire
from tidelog.v1 import broker_pb2 as pb
from tidelog.v1 import errors_pb2
from tidelog_broker.edge.broker_service import BrokerService
from tidelog_broker.requests.batch_checks import BatchChecks
from tidelog_broker.requests.consumer_fetch import ConsumerFetch
from tidelog_broker.requests.describe_producers import DescribeProducers
from tidelog_broker.requests.list_offsets import ListOffsets
from tidelog_broker.requests.produce import Produce
from tidelog_broker.requests.producer_ids import ProducerIds
from tidelog_runtime.metadata.schema import (
    ClusterEntry,
    ControllerEntry,
    ControllerProcess,
    Moving,
    encode,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from unit.broker.broker_parts import (
    KEYS,
    Replicas,
    broker_change,
    commit,
    in_place,
    on,
    partition_change,
    topic_change,
)
from unit.broker.fake_log import NAME, TOPIC_ID, epoch_of, sent_by, state

ALONE = state(isr=(1,), replicas=(1,), min_isr=1)


class AbortedError(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


class Context:
    async def abort(self, code: grpc.StatusCode, details: str, _: object) -> NoReturn:
        raise AbortedError(code, details)


CONTEXT = cast("grpc.aio.ServicerContext[Any, Any]", Context())


def check(batch: Batch) -> int:
    return record_batch.check(batch, max_decompressed_bytes=1 << 20)


def timestamps_of(batch: Batch) -> list[int]:
    return record_batch.decode(batch).timestamps_ms


class Edge:
    def __init__(self) -> None:
        self.replicas = replicas = Replicas()
        manager, purgatory = replicas.manager, replicas.purgatory
        self.store = MemoryStore(replicas.clock)
        checks = BatchChecks(check, without_deltas, in_place)
        self.service = BrokerService(
            Produce(manager, purgatory, replicas.clock, checks).handle,
            ConsumerFetch(manager, purgatory, replicas.clock, replicas.cold_reads).handle,
            ListOffsets(manager, timestamps_of, replicas.cold_reads, in_place).handle,
            ProducerIds(self.store, KEYS).handle,
            DescribeProducers(manager, purgatory, replicas.clock),
            replicas.cache,
        )

    async def produce(
        self,
        *batches: Batch,
        acks: int = pb.ACKS_ALL,
        timeout_ms: int = 1000,
    ) -> pb.ProducePartitionResult:
        partition = pb.ProducePartition(
            topic=NAME.topic, batches=[batch_to_wire(batch) for batch in batches]
        )
        request = pb.ProduceRequest(
            acks=cast("pb.Acks.ValueType", acks), timeout_ms=timeout_ms, partitions=[partition]
        )
        (result,) = (await self.service.Produce(request, CONTEXT)).partitions
        return result

    async def fetch(self, **fields: int) -> pb.FetchPartitionResult:
        settings = {"min_bytes": 1, "max_bytes": 1 << 20, **fields}
        partition = pb.FetchPartition(
            topic=NAME.topic, current_leader_epoch=-1, max_bytes=1 << 20, fetch_offset=0
        )
        request = pb.FetchRequest(partitions=[partition], **settings)
        (result,) = (await self.service.Fetch(request, CONTEXT)).partitions
        return result

    async def find(self, position: int, timestamp_ms: int = 0) -> pb.ListOffsetsPartitionResult:
        partition = pb.ListOffsetsPartition(
            topic=NAME.topic,
            current_leader_epoch=-1,
            position=cast("pb.OffsetPosition.ValueType", position),
            timestamp_ms=timestamp_ms,
        )
        request = pb.ListOffsetsRequest(partitions=[partition])
        (result,) = (await self.service.ListOffsets(request, CONTEXT)).partitions
        return result


def code_of(error: errors_pb2.Error) -> ErrorCode:
    return ErrorCode(int(error.code))


def batch_of(*values: bytes) -> Batch:
    return record_batch.encode(values, timestamps_ms=10)


# -- produce and fetch ---------------------------------------------------------------------


async def test_produced_records_are_fetched() -> None:
    edge = Edge()
    await edge.replicas.lead(new_state=ALONE)
    produced = await edge.produce(batch_of(b"ebb", b"flow"))
    assert not produced.HasField("error")
    assert (produced.base_offset, produced.leader_epoch) == (0, 5)
    fetched = await edge.fetch()
    (wire,) = fetched.batches
    batch = batch_from_wire(wire)
    assert record_batch.decode(batch).values == [b"ebb", b"flow"]
    assert (batch.header.base_offset, batch.header.leader_epoch) == (0, 5)
    assert (fetched.high_watermark, fetched.leader_epoch) == (2, 5)


async def test_a_partition_error_is_in_the_answer_with_the_hint() -> None:
    edge = Edge()
    edge.replicas.cache.apply([topic_change(), broker_change(2)])
    edge.replicas.knows(state(leader=2), 10)
    for result in (await edge.produce(batch_of(b"v")), await edge.fetch()):
        assert code_of(result.error) is ErrorCode.NOT_LEADER
        assert result.error.leader.address == "10.0.0.2:7500"
        assert (result.topic, result.partition) == NAME


async def test_a_false_record_count_is_an_invalid_batch_and_nothing_is_written() -> None:
    edge = Edge()
    partition = await edge.replicas.lead(new_state=ALONE)
    header, records = batch_of(b"v")
    lying = header._replace(record_count=7)
    lie = Batch(lying._replace(crc32c=producer_crc32c(lying, records)), records)
    result = await edge.produce(lie)
    assert code_of(result.error) is ErrorCode.INVALID_BATCH
    assert "record_count is 7" in result.error.message
    assert partition.log.log_end_offset == 0


async def test_acks_0_returns_no_errors_and_no_offset() -> None:
    result = await Edge().produce(batch_of(b"v"), acks=pb.ACKS_NONE)
    assert not result.HasField("error")
    assert result.base_offset == -1


@pytest.mark.parametrize("acks", [pb.ACKS_UNSPECIFIED, 9])
async def test_an_unknown_acks_value_rejects_the_request(acks: int) -> None:
    with pytest.raises(AbortedError, match="ACKS_NONE, ACKS_LEADER or ACKS_ALL") as raised:
        await Edge().produce(batch_of(b"v"), acks=acks)
    assert raised.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_timeout_out_of_range_rejects_the_request() -> None:
    with pytest.raises(AbortedError, match="timeout_ms is 0"):
        await Edge().produce(batch_of(b"v"), timeout_ms=0)


@pytest.mark.parametrize("field", ["max_wait_ms", "min_bytes", "max_bytes"])
async def test_a_negative_limit_rejects_the_fetch(field: str) -> None:
    with pytest.raises(AbortedError, match=f"{field} is -1; it must be 0 or more"):
        await Edge().fetch(**{field: -1})


# -- list offsets --------------------------------------------------------------------------


async def test_offsets_are_found() -> None:
    edge = Edge()
    await edge.replicas.lead(new_state=ALONE)
    await edge.produce(batch_of(b"a", b"b"))
    latest = await edge.find(pb.OFFSET_POSITION_LATEST)
    by_time = await edge.find(pb.OFFSET_POSITION_TIMESTAMP, timestamp_ms=10)
    none = await edge.find(pb.OFFSET_POSITION_TIMESTAMP, timestamp_ms=11)
    assert [(r.offset, r.timestamp_ms) for r in (latest, by_time, none)] == [
        (2, -1),
        (0, 10),
        (-1, -1),
    ]


async def test_an_offset_requested_more_than_once_is_searched_once() -> None:
    edge = Edge()
    await edge.replicas.lead(new_state=ALONE)
    await edge.produce(batch_of(b"a", b"b"))
    opened: list[Batch] = []

    def timestamps(batch: Batch) -> list[int]:
        opened.append(batch)
        return timestamps_of(batch)

    manager, cold_reads = edge.replicas.manager, edge.replicas.cold_reads
    edge.service._list_offsets = ListOffsets(manager, timestamps, cold_reads, in_place).handle
    asked = [
        pb.ListOffsetsPartition(
            topic=NAME.topic,
            current_leader_epoch=-1,
            position=pb.OFFSET_POSITION_TIMESTAMP,
            timestamp_ms=timestamp_ms,
        )
        for timestamp_ms in (10, 11, 10, 10)
    ]
    answer = await edge.service.ListOffsets(pb.ListOffsetsRequest(partitions=asked), CONTEXT)
    assert [result.offset for result in answer.partitions] == [0, -1, 0, 0]
    assert len(opened) == 1


async def test_an_invalid_position_is_an_error_of_that_partition() -> None:
    result = await Edge().find(pb.OFFSET_POSITION_UNSPECIFIED)
    assert code_of(result.error) is ErrorCode.INVALID_REQUEST
    assert "EARLIEST, LATEST or TIMESTAMP" in result.error.message
    assert result.offset == -1


# -- metadata ------------------------------------------------------------------------------


def written(key: str, value: bytes) -> Changed:
    return Changed(key, KeyValue(key, value, 5, 5), 5)


async def metadata(edge: Edge, *topics: str, cluster_only: bool = False) -> pb.MetadataResponse:
    request = pb.MetadataRequest(topics=topics, cluster_only=cluster_only)
    return await edge.service.Metadata(request, CONTEXT)


def with_metadata() -> Edge:
    edge = Edge()
    edge.replicas.cache.apply(
        [
            broker_change(1),
            broker_change(2),
            topic_change(partitions=2),
            partition_change(state(leader=2, isr=(2, 1)), 120),
            partition_change(state(leader=1, isr=(1,), eligible=(3,)), 121, on(1)),
            written(KEYS.controller, encode(ControllerEntry(4, "10.0.0.9:7400"))),
            written(KEYS.controller_epoch, b"7"),
            written(KEYS.controller_process(5), encode(ControllerProcess("10.0.0.8:7400", 90))),
            written(KEYS.controller_process(4), encode(ControllerProcess("10.0.0.9:7400", 80))),
            written(KEYS.cluster, encode(ClusterEntry("the-cluster"))),
        ]
    )
    return edge


async def test_metadata_names_cluster_controller_and_brokers() -> None:
    response = await metadata(with_metadata(), cluster_only=True)
    assert response.cluster_id == "the-cluster"
    controller = response.controller
    assert (controller.controller_id, controller.address, controller.controller_epoch) == (
        4,
        "10.0.0.9:7400",
        7,
    )
    assert [(c.controller_id, c.address, c.started_at_ms) for c in response.controllers] == [
        (4, "10.0.0.9:7400", 80),
        (5, "10.0.0.8:7400", 90),
    ]
    assert [(b.broker_id, b.address, b.broker_epoch, b.state) for b in response.brokers] == [
        (1, "10.0.0.1:7500", epoch_of(1), "running"),
        (2, "10.0.0.2:7500", epoch_of(2), "running"),
    ]
    assert not response.topics


async def test_metadata_names_the_revision_that_the_broker_has_reached() -> None:
    edge = with_metadata()
    assert (await metadata(edge, "none")).revision == edge.replicas.cache.revision == 121
    edge.replicas.cache.apply([Changed(KEYS.topic(NAME.topic), None, 130)])
    gone = await metadata(edge, NAME.topic)
    assert (gone.revision, code_of(gone.topics[0].error)) == (
        130,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


async def test_metadata_without_partitions_has_the_fields_that_clients_compare() -> None:
    edge = with_metadata()
    request = pb.MetadataRequest(topics=[NAME.topic, "none"], without_partitions=True)
    topic, missing = (await edge.service.Metadata(request, CONTEXT)).topics
    full = (await metadata(edge, NAME.topic)).topics[0]
    assert full.partitions
    del full.partitions[:]
    assert topic == full
    assert code_of(missing.error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_metadata_lists_partitions_in_order_with_isr_eligible_and_offline_replicas() -> None:
    (topic,) = (await metadata(with_metadata())).topics
    assert (topic.name, topic.topic_id, topic.replication_factor) == (NAME.topic, TOPIC_ID, 3)
    first, second = topic.partitions
    assert (first.partition, first.leader, [*first.isr]) == (0, 2, [1, 2])
    assert (second.partition, second.leader, [*second.isr]) == (1, 1, [1])
    assert second.eligible_leader_replicas == [3]
    assert ([*first.replicas], [*first.offline_replicas]) == ([1, 2, 3], [3])


async def test_metadata_lists_replicas_that_are_added_or_leave() -> None:
    edge = with_metadata()
    to_4 = Moving("grow-1", (1, 2, 3), (1, 4, 2))
    moved = replace(state(), replicas=to_4.replicas, moving=to_4)
    edge.replicas.cache.apply([partition_change(moved, 130)])
    (topic,) = (await metadata(edge, NAME.topic)).topics
    first, second = topic_from_wire(topic).partitions
    assert (first.replicas, first.moving_operation) == ((1, 2, 3, 4), "grow-1")
    assert (first.adding_replicas, first.leaving_replicas) == ((4,), (3,))
    assert (second.moving_operation, second.adding_replicas) == ("", ())


async def test_metadata_has_the_topics_creation_whatever_was_written_since() -> None:
    edge = with_metadata()
    since = topic_change(revision=130)
    assert since.value is not None
    created = since._replace(value=since.value._replace(create_revision=9))
    edge.replicas.cache.apply([created])
    (topic,) = (await metadata(edge, NAME.topic)).topics
    assert topic.create_revision == 9


async def test_metadata_has_the_creation_of_each_partition() -> None:
    edge = with_metadata()
    again = partition_change(state(), 130)
    assert again.value is not None
    edge.replicas.cache.apply([again._replace(value=again.value._replace(create_revision=128))])
    (topic,) = (await metadata(edge, NAME.topic)).topics
    assert topic_from_wire(topic).partitions[0].create_revision == 128


async def test_metadata_leaves_out_partitions_of_a_previous_topic_of_the_name() -> None:
    edge = with_metadata()
    edge.replicas.cache.apply([topic_change(topic_id="other-id-other-id-othe", revision=130)])
    (topic,) = (await metadata(edge, NAME.topic)).topics
    assert not topic.partitions


async def test_a_missing_topic_is_an_error_beside_existing_ones() -> None:
    there, nowhere = (await metadata(with_metadata(), NAME.topic, "nowhere")).topics
    assert not there.HasField("error")
    assert code_of(nowhere.error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "'nowhere' does not exist" in nowhere.error.message


async def test_without_a_controller_none_is_named() -> None:
    assert not (await metadata(Edge())).HasField("controller")


async def test_a_consumer_gets_no_more_than_its_limit() -> None:
    edge = Edge()
    commit(await edge.replicas.lead(), bytes(600), bytes(600))
    assert len((await edge.fetch(max_bytes=700)).batches) == 1


# -- producers ---------------------------------------------------------------------------


async def init(edge: Edge, name: str = "") -> pb.InitProducerIdResponse:
    return await edge.service.InitProducerId(pb.InitProducerIdRequest(producer_name=name), CONTEXT)


async def test_an_epoch_is_returned_for_the_name_that_requests_it() -> None:
    edge = Edge()
    named = pb.NamedEpoch(producer_name="tide", producer_epoch=7, partition_counts={"sea": 2})
    request = pb.InitProducerIdRequest(named_epoch=named)
    given = await edge.service.InitProducerId(request, CONTEXT)
    assert (given.producer_epoch, dict(given.partition_counts)) == (7, {"sea": 2})
    assert (await init(edge, "tide")).producer_id == given.producer_id


async def describe(
    edge: Edge, fence: pb.ProducerFence | None = None
) -> pb.DescribeProducersPartitionResult:
    partition = pb.DescribeProducersPartition(topic=NAME.topic)
    request = pb.DescribeProducersRequest(partitions=[partition], fence=fence)
    (result,) = (await edge.service.DescribeProducers(request, CONTEXT)).partitions
    return result


async def test_producers_are_described_in_pages() -> None:
    edge = Edge()
    partition = await edge.replicas.lead(new_state=ALONE)
    for producer in (7, 8, 9):
        partition.append([sent_by(producer, 0)], Acks.LEADER, 5)
    asked = [pb.DescribeProducersPartition(topic=NAME.topic)]
    found = []
    request = pb.DescribeProducersRequest(partitions=asked, page_size=2)
    for next_id in (9, None):
        (result,) = (await edge.service.DescribeProducers(request, CONTEXT)).partitions
        found += [producer.producer_id for producer in result.producers]
        assert (result.next_producer_id if result.HasField("next_producer_id") else None) == next_id
        request.from_producer_id = result.next_producer_id
    assert found == [7, 8, 9]


async def test_a_partition_listed_twice_is_rejected_by_describe_producers() -> None:
    asked = [pb.DescribeProducersPartition(topic=NAME.topic)] * 2
    request = pb.DescribeProducersRequest(partitions=asked)
    with pytest.raises(AbortedError, match="appears twice"):
        await Edge().service.DescribeProducers(request, CONTEXT)


async def test_a_producer_gets_its_id_and_epoch() -> None:
    edge = Edge()
    unnamed, first, second = await init(edge), await init(edge, "sink"), await init(edge, "sink")
    assert (unnamed.producer_id, unnamed.producer_epoch) == (1, 0)
    assert first.producer_id == second.producer_id > 1 << 62
    assert (first.producer_epoch, second.producer_epoch) == (0, 1)


async def test_without_the_store_a_producer_gets_a_retriable_error() -> None:
    edge = Edge()
    edge.store.disconnect()
    response = await init(edge)
    assert code_of(response.error) is ErrorCode.METADATA_STORE_UNAVAILABLE
    assert "try again" in response.error.message


async def test_an_invalid_producer_name_is_rejected() -> None:
    with pytest.raises(AbortedError, match="is not a producer name") as rejected:
        await init(Edge(), "a b")
    assert rejected.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_producers_are_described() -> None:
    edge = Edge()
    await edge.replicas.lead(new_state=ALONE)
    records = record_batch.encode_records([b"a", b"b"], timestamps_ms=10)
    assert not (await edge.produce(records.to_batch(7, 0, 0))).HasField("error")
    (producer,) = (await describe(edge)).producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 0, 1)


async def test_a_fence_is_checked_and_kept() -> None:
    edge = Edge()
    await edge.replicas.lead(new_state=ALONE)
    given = await init(edge, "sink")
    fence = pb.ProducerFence(producer_id=given.producer_id, producer_epoch=1, timeout_ms=100)
    (producer,) = (await describe(edge, fence)).producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (
        given.producer_id,
        1,
        -1,
    )
    records = record_batch.encode_records([b"late"], timestamps_ms=10)
    late = await edge.produce(records.to_batch(given.producer_id, 0, 0))
    assert code_of(late.error) is ErrorCode.FENCED_PRODUCER_EPOCH
    fence.timeout_ms = 0
    with pytest.raises(AbortedError, match="timeout_ms is 0"):
        await describe(edge, fence)


async def test_producers_of_a_missing_partition_are_an_error() -> None:
    result = await describe(Edge())
    assert code_of(result.error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_fence_is_a_batch_that_consumers_get_and_clients_skip() -> None:
    edge = Edge()
    await edge.replicas.lead(new_state=ALONE)
    given = await init(edge, "sink")
    await describe(
        edge, pb.ProducerFence(producer_id=given.producer_id, producer_epoch=1, timeout_ms=100)
    )
    (batch,) = (await edge.fetch()).batches
    assert is_fence(batch_from_wire(batch).header)
    check(batch_from_wire(batch))
