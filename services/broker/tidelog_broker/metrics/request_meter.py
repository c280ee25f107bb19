"""Meters the requests of a broker.

It counts bytes, records and batches by flow and topic, durations, and rejections. The meter wraps
the requests from outside: a broker whose metrics are off pays nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nlargest

from tidelog.errors import TidelogError
from tidelog.model import Acks, Batch
from tidelog_broker.core.fetch_messages import (
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
)
from tidelog_broker.replication.transport import Peers
from tidelog_broker.requests.consumer_fetch import FetchEntry, FetchOutcome, FetchWait
from tidelog_broker.requests.list_offsets import FoundOffset, ListOffsetsEntry
from tidelog_broker.requests.produce import ProduceEntry, ProduceOutcome
from tidelog_broker.requests.producer_ids import GivenProducer
from tidelog_runtime.cooperative import QUICK_ITEMS_PER_SLICE, map_yielding
from tidelog_runtime.telemetry.metrics import broker_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.broker_catalogue import (
    FETCH,
    MAX_TOPIC_SERIES,
    PRODUCE,
    REPLICA_IN,
    REPLICA_OUT,
    REQUESTS,
)
from tidelog_runtime.telemetry.metrics.recording import Counts, HistogramFamily
from tidelog_runtime.telemetry.metrics.service_catalogue import REQUEST_DURATION
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot

_PRODUCE_LABELS = {Acks.NONE: "none", Acks.LEADER: "leader", Acks.ALL: "all"}


class Flow:
    """Sums of one direction."""

    __slots__ = ("batches", "bytes", "records")

    def __init__(self) -> None:
        self.bytes = 0
        self.records = 0
        self.batches = 0

    def add(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.bytes += len(batch.records)
            self.records += batch.header.record_count
        self.batches += len(batches)


class TopicFlows:
    __slots__ = ("fetch", "produce")

    def __init__(self) -> None:
        self.produce = Flow()
        self.fetch = Flow()


class RequestMeter:
    """Counts requests.

    `seconds`: a clock of which only differences count. Only existing topics have flows: requests
    for others are rejected.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self.durations = HistogramFamily(REQUEST_DURATION.of(REQUESTS))
        self.rejected = Counts(catalogue.REFUSED)
        self.replica_out = Flow()
        self.replica_in = Flow()
        # Sums of deleted topics.
        self._deleted_topics = TopicFlows()
        self._topics: dict[str, TopicFlows] = {}

    def topic(self, topic: str) -> TopicFlows:
        flows = self._topics.get(topic)
        if flows is None:
            flows = self._topics[topic] = TopicFlows()
        return flows

    def reject(self, request: str, error: TidelogError) -> None:
        self.rejected.add(request, error.code.name)

    def forget_topics_but(self, present: Callable[[str], bool]) -> None:
        """Drops the series of deleted topics. Their sums stay in the totals."""
        for topic in [topic for topic in self._topics if not present(topic)]:
            flows = self._topics.pop(topic)
            for gone, flow in (
                (self._deleted_topics.produce, flows.produce),
                (self._deleted_topics.fetch, flows.fetch),
            ):
                gone.bytes += flow.bytes
                gone.records += flow.records
                gone.batches += flow.batches

    def write_to(self, snapshot: MetricsSnapshot) -> None:
        snapshot.set_histograms(self.durations)
        snapshot.set_counters(self.rejected)
        all_topics = [self._deleted_topics, *self._topics.values()]
        for name, flows in (
            (PRODUCE, [flows.produce for flows in all_topics]),
            (FETCH, [flows.fetch for flows in all_topics]),
            (REPLICA_OUT, [self.replica_out]),
            (REPLICA_IN, [self.replica_in]),
        ):
            snapshot.set(catalogue.DATA_BYTES, sum(flow.bytes for flow in flows), name)
            snapshot.set(catalogue.DATA_RECORDS, sum(flow.records for flow in flows), name)
            snapshot.set(catalogue.DATA_BATCHES, sum(flow.batches for flow in flows), name)
        busiest = nlargest(
            MAX_TOPIC_SERIES,
            self._topics.items(),
            key=lambda item: item[1].produce.bytes + item[1].fetch.bytes,
        )
        for topic, flows_of_topic in busiest:
            for name, flow in ((PRODUCE, flows_of_topic.produce), (FETCH, flows_of_topic.fetch)):
                snapshot.set(catalogue.TOPIC_BYTES, flow.bytes, topic, name)
                snapshot.set(catalogue.TOPIC_RECORDS, flow.records, topic, name)


# -- wrappers of requests -----------------------------------------------------------------

ProduceCall = Callable[[Sequence[ProduceEntry], Acks, int], Awaitable[list[ProduceOutcome]]]
FetchCall = Callable[[Sequence[FetchEntry], FetchWait], Awaitable[list[FetchOutcome]]]
ReplicaFetchCall = Callable[[ReplicaFetchRequest], Awaitable[ReplicaFetchResponse]]
ListOffsetsCall = Callable[[ListOffsetsEntry], Awaitable[FoundOffset]]
ProducerIdCall = Callable[[str, int | None, Mapping[str, int]], Awaitable[GivenProducer]]


def metered_produce(produce: ProduceCall, meter: RequestMeter) -> ProduceCall:
    durations = {
        acks: meter.durations.of(PRODUCE, label) for acks, label in _PRODUCE_LABELS.items()
    }

    async def metered(
        entries: Sequence[ProduceEntry], acks: Acks, timeout_ms: int
    ) -> list[ProduceOutcome]:
        began = meter.seconds()
        try:
            outcomes = await produce(entries, acks, timeout_ms)
        except TidelogError as error:
            meter.reject(PRODUCE, error)
            raise
        durations[acks].observe(meter.seconds() - began)
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome.error is not None:
                meter.reject(PRODUCE, outcome.error)
            else:
                meter.topic(entry.name.topic).produce.add(entry.batches)
        return outcomes

    return metered


def metered_fetch(fetch: FetchCall, meter: RequestMeter) -> FetchCall:
    with_records, idle = meter.durations.of("fetch", ""), meter.durations.of("fetch_idle", "")

    async def metered(entries: Sequence[FetchEntry], wait: FetchWait) -> list[FetchOutcome]:
        began = meter.seconds()
        outcomes = await fetch(entries, wait)
        some = False
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome.error is not None:
                meter.reject(FETCH, outcome.error)
            elif outcome.answer is not None and outcome.answer.batches:
                some = True
                meter.topic(entry.name.topic).fetch.add(outcome.answer.batches)
        (with_records if some else idle).observe(meter.seconds() - began)
        return outcomes

    return metered


def metered_replica_fetch(fetch: ReplicaFetchCall, meter: RequestMeter) -> ReplicaFetchCall:
    """Meters replica fetches as the leader serves them."""
    with_records = meter.durations.of("replica_fetch", "")
    idle = meter.durations.of("replica_fetch_idle", "")

    def count(result: ReplicaFetchResult) -> bool:
        """Counts a result. Returns whether it has records."""
        if result.answer is None:
            if result.error is not None:
                meter.reject("replica_fetch", result.error)
            return False
        meter.replica_out.add(result.answer.batches)
        return bool(result.answer.batches)

    async def metered(request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        began = meter.seconds()
        response = await fetch(request)
        if response.error is not None:
            meter.reject("replica_fetch", response.error)
        some = any(await map_yielding(count, response.results, QUICK_ITEMS_PER_SLICE))
        (with_records if some else idle).observe(meter.seconds() - began)
        return response

    return metered


def metered_list_offsets(list_offsets: ListOffsetsCall, meter: RequestMeter) -> ListOffsetsCall:
    async def metered(entry: ListOffsetsEntry) -> FoundOffset:
        try:
            return await list_offsets(entry)
        except TidelogError as error:
            meter.reject("list_offsets", error)
            raise

    return metered


def metered_producer_ids(init_producer_id: ProducerIdCall, meter: RequestMeter) -> ProducerIdCall:
    async def metered(
        name: str, epoch: int | None, partition_counts: Mapping[str, int]
    ) -> GivenProducer:
        try:
            return await init_producer_id(name, epoch, partition_counts)
        except TidelogError as error:
            meter.reject("init_producer_id", error)
            raise

    return metered


class MeteredPeers:
    """Other brokers; meters the records that leaders send to this one."""

    def __init__(self, peers: Peers, meter: RequestMeter) -> None:
        self._peers = peers
        self._flow = meter.replica_in

    async def reach(self, address: str) -> None:
        await self._peers.reach(address)

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse:
        response = await self._peers.replica_fetch(address, request)
        await map_yielding(self._count, response.results, QUICK_ITEMS_PER_SLICE)
        return response

    def _count(self, result: ReplicaFetchResult) -> None:
        if result.answer is not None and result.answer.batches:
            self._flow.add(result.answer.batches)

    def complete_early(self, address: str, request: ReplicaFetchRequest) -> None:
        self._peers.complete_early(address, request)

    async def close(self) -> None:
        await self._peers.close()
