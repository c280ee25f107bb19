"""Client requests are timed and counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from doubles.memory_store import MemoryStore
from tidelog.record_batch import without_deltas
from tidelog.rpc.wire import batch_to_wire
from tidelog.v1 import broker_pb2 as pb
from tidelog_broker.broker import Broker
from tidelog_broker.edge.metered_service import MeteredBrokerService
from tidelog_broker.metrics.request_meter import RequestMeter
from tidelog_broker.requests.batch_checks import BatchChecks
from tidelog_broker.requests.consumer_fetch import ConsumerFetch
from tidelog_broker.requests.describe_producers import DescribeProducers
from tidelog_broker.requests.list_offsets import ListOffsets
from tidelog_broker.requests.produce import Produce
from tidelog_broker.requests.producer_ids import ProducerIds
from unit.broker.broker_parts import KEYS, Replicas, in_place, topic_change
from unit.broker.edge.test_broker_service import CONTEXT, check, timestamps_of
from unit.broker.fake_log import NAME, sent


class MeteredEdge:
    """Broker 1 knows the topic and has no replica of it."""

    def __init__(self) -> None:
        replicas = Replicas()
        replicas.cache.apply([topic_change()])
        manager, purgatory, clock = replicas.manager, replicas.purgatory, replicas.clock
        checks = BatchChecks(check, without_deltas, in_place)
        parts = SimpleNamespace(
            produce=Produce(manager, purgatory, clock, checks),
            consumer_fetch=ConsumerFetch(manager, purgatory, clock, replicas.cold_reads),
            list_offsets=ListOffsets(manager, timestamps_of, replicas.cold_reads, in_place),
            producer_ids=ProducerIds(MemoryStore(clock), KEYS),
            describe_producers=DescribeProducers(manager, purgatory, clock),
            cache=replicas.cache,
        )
        self.meter = RequestMeter(lambda: 0.0)
        self.service = MeteredBrokerService(cast("Broker", parts), self.meter)

    def timed(self) -> dict[str, int]:
        """The number of timed requests by name."""
        series = self.meter.durations.series.items()
        return {name: sum(d.counts) for (name, _), d in series if sum(d.counts)}

    def rejected(self) -> set[tuple[str, ...]]:
        return {labels for labels, count in self.meter.rejected.values.items() if count}


async def test_each_request_is_timed_under_its_name() -> None:
    edge = MeteredEdge()

    await edge.service.Metadata(pb.MetadataRequest(), CONTEXT)
    await edge.service.ListOffsets(pb.ListOffsetsRequest(), CONTEXT)
    await edge.service.DescribeProducers(pb.DescribeProducersRequest(), CONTEXT)
    await edge.service.InitProducerId(pb.InitProducerIdRequest(), CONTEXT)

    assert edge.timed() == {
        "metadata": 1,
        "list_offsets": 1,
        "describe_producers": 1,
        "init_producer_id": 1,
    }


async def test_a_request_for_a_partition_led_elsewhere_is_rejected_and_counted() -> None:
    edge = MeteredEdge()
    topic, partition = NAME

    await edge.service.Produce(
        pb.ProduceRequest(
            acks=pb.ACKS_ALL,
            timeout_ms=1000,
            partitions=[
                pb.ProducePartition(
                    topic=topic, partition=partition, batches=[batch_to_wire(sent())]
                )
            ],
        ),
        CONTEXT,
    )
    await edge.service.Fetch(
        pb.FetchRequest(partitions=[pb.FetchPartition(topic=topic, partition=partition)]), CONTEXT
    )
    await edge.service.ListOffsets(
        pb.ListOffsetsRequest(
            partitions=[
                pb.ListOffsetsPartition(
                    topic=topic, partition=partition, position=pb.OFFSET_POSITION_EARLIEST
                )
            ]
        ),
        CONTEXT,
    )

    assert edge.rejected() == {
        (request, "LEADER_NOT_AVAILABLE") for request in ("produce", "fetch", "list_offsets")
    }
