"""What is counted around a broker's requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks, TopicPartition
from tidelog_broker.core.fetch_messages import (
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
)
from tidelog_broker.core.partition.exchange import Appended, FetchAnswer
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.metrics.request_meter import (
    MeteredPeers,
    RequestMeter,
    metered_fetch,
    metered_list_offsets,
    metered_produce,
    metered_producer_ids,
    metered_replica_fetch,
)
from tidelog_broker.requests.consumer_fetch import FetchEntry, FetchOutcome, FetchWait
from tidelog_broker.requests.list_offsets import FoundOffset, ListOffsetsEntry
from tidelog_broker.requests.produce import ProduceEntry, ProduceOutcome
from tidelog_broker.requests.producer_ids import GivenProducer
from tidelog_runtime.telemetry.metrics.broker_catalogue import (
    BROKER_METRICS,
    MAX_TOPIC_SERIES,
)
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from unit.broker.fake_log import NAME, sent_by, stamped

BATCHES = [sent_by(7, 0, count=2, records=b"four"), sent_by(7, 2, count=3, records=b"five!")]
TAKEN = ProduceOutcome(Appended(0, 5, 1, 1), None, 0)
REFUSED = TidelogError(ErrorCode.NOT_ENOUGH_REPLICAS, "two are away")
WAIT = FetchWait(100, 1, 1 << 20)
REQUEST = ReplicaFetchRequest(2, 102, 101, 500, 1, 1 << 20, ())


class Meter(RequestMeter):
    """A meter whose clock advances by a tenth of a second at each reading."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(self.tick)

    def tick(self) -> float:
        self.now += 0.1
        return self.now

    def snapshot(self) -> MetricsSnapshot:
        snapshot = MetricsSnapshot(BROKER_METRICS)
        self.write_to(snapshot)
        return snapshot

    def timed(self, request: str, acks: str = "") -> int:
        return sum(self.durations.of(request, acks).counts)

    def flow(self, flow: str) -> tuple[float, float, float]:
        """Bytes, records and batches."""
        values = self.snapshot().values
        return (
            values["tidelog_data_bytes_total"][flow,],
            values["tidelog_data_records_total"][flow,],
            values["tidelog_data_batches_total"][flow,],
        )


async def produce(meter: Meter, outcome: ProduceOutcome, acks: Acks = Acks.ALL) -> None:
    async def answer(*_: object) -> list[ProduceOutcome]:
        return [outcome]

    await metered_produce(answer, meter)([ProduceEntry(NAME, "", BATCHES)], acks, 1000)


def answered(*offsets: int) -> FetchAnswer:
    return FetchAnswer(9, 0, 1, [stamped(offset, 1) for offset in offsets])


async def fetch(meter: Meter, outcome: FetchOutcome) -> None:
    async def answer(*_: object) -> list[FetchOutcome]:
        return [outcome]

    await metered_fetch(answer, meter)([FetchEntry(NAME, "", 1, 0, 1 << 20)], WAIT)


def response(*answers: FetchAnswer | TidelogError) -> ReplicaFetchResponse:
    return ReplicaFetchResponse(
        None,
        [
            ReplicaFetchResult(ReplicaKey("id", number), None, found, 0)
            if isinstance(found, TidelogError)
            else ReplicaFetchResult(ReplicaKey("id", number), found, None, 0)
            for number, found in enumerate(answers)
        ],
    )


async def test_produced_data_counts_for_its_topic_and_in_total() -> None:
    meter = Meter()

    await produce(meter, TAKEN)

    assert meter.flow("produce") == (9, 5, 2)
    topic = meter.snapshot().values["tidelog_topic_bytes_total"]
    assert topic == {(NAME.topic, "produce"): 9, (NAME.topic, "fetch"): 0}


@pytest.mark.parametrize(
    ("acks", "label"), [(Acks.NONE, "none"), (Acks.LEADER, "leader"), (Acks.ALL, "all")]
)
async def test_a_produce_is_timed_by_its_acks(acks: Acks, label: str) -> None:
    meter = Meter()

    await produce(meter, TAKEN, acks)

    assert meter.timed("produce", label) == 1
    assert meter.durations.of("produce", label).total == pytest.approx(0.1)


async def test_a_rejected_produce_counts_by_its_code_and_not_as_data() -> None:
    meter = Meter()

    await produce(meter, ProduceOutcome(None, REFUSED, -1))

    assert meter.flow("produce") == (0, 0, 0)
    assert meter.rejected.values["produce", "NOT_ENOUGH_REPLICAS"] == 1
    assert sum(meter.rejected.values.values()) == 1


async def test_a_produce_rejected_as_a_whole_counts_once() -> None:
    meter = Meter()

    async def reject(*_: object) -> list[ProduceOutcome]:
        raise TidelogError(ErrorCode.INVALID_REQUEST, "no batch")

    with pytest.raises(TidelogError):
        await metered_produce(reject, meter)([], Acks.ALL, 1000)

    assert meter.rejected.values["produce", "INVALID_REQUEST"] == 1


async def test_a_fetch_without_records_is_timed_as_idle() -> None:
    meter = Meter()

    await fetch(meter, FetchOutcome(answered(), None))
    await fetch(meter, FetchOutcome(answered(0, 1), None))

    assert meter.timed("fetch_idle") == 1
    assert meter.timed("fetch") == 1
    assert meter.flow("fetch") == (2, 2, 2)


async def test_a_rejected_fetch_counts_by_its_code() -> None:
    meter = Meter()

    await fetch(meter, FetchOutcome(None, TidelogError(ErrorCode.NOT_LEADER, "elsewhere")))

    assert meter.rejected.values["fetch", "NOT_LEADER"] == 1


async def test_the_leader_counts_data_and_rejections_of_followers() -> None:
    meter = Meter()

    async def answer(_: ReplicaFetchRequest) -> ReplicaFetchResponse:
        fenced = TidelogError(ErrorCode.FENCED_LEADER_EPOCH, "older")
        return response(answered(0, 1, 2), fenced, answered())

    await metered_replica_fetch(answer, meter)(REQUEST)

    assert meter.flow("replica_out") == (3, 3, 3)
    assert meter.rejected.values["replica_fetch", "FENCED_LEADER_EPOCH"] == 1
    assert meter.timed("replica_fetch") == 1


async def test_a_follower_that_gets_nothing_is_idle() -> None:
    meter = Meter()

    async def answer(_: ReplicaFetchRequest) -> ReplicaFetchResponse:
        return response(answered())

    await metered_replica_fetch(answer, meter)(REQUEST)

    assert meter.timed("replica_fetch_idle") == 1
    assert meter.timed("replica_fetch") == 0


async def test_the_follower_counts_data_from_leaders() -> None:
    meter = Meter()

    class Peers:
        async def replica_fetch(self, *_: object) -> ReplicaFetchResponse:
            return response(answered(0, 1))

        async def reach(self, *_: object) -> None: ...

        def complete_early(self, *_: object) -> None: ...

        async def close(self) -> None: ...

    await MeteredPeers(Peers(), meter).replica_fetch("127.0.0.1:1", REQUEST)

    assert meter.flow("replica_in") == (2, 2, 2)
    assert meter.flow("replica_out") == (0, 0, 0)


async def test_rejected_offset_and_producer_id_requests_count_and_stay_rejected() -> None:
    meter = Meter()

    async def no_offset(_: ListOffsetsEntry) -> FoundOffset:
        raise TidelogError(ErrorCode.OFFSET_NOT_AVAILABLE, "not yet")

    async def no_id(_: str, __: int | None, ___: Mapping[str, int]) -> GivenProducer:
        raise TidelogError(ErrorCode.METADATA_STORE_UNAVAILABLE, "away")

    with pytest.raises(TidelogError):
        await metered_list_offsets(no_offset, meter)(None)  # type: ignore[arg-type]
    with pytest.raises(TidelogError):
        await metered_producer_ids(no_id, meter)("", None, {})

    assert meter.rejected.values["list_offsets", "OFFSET_NOT_AVAILABLE"] == 1
    assert meter.rejected.values["init_producer_id", "METADATA_STORE_UNAVAILABLE"] == 1


async def test_only_the_busiest_topics_have_series_and_all_count_in_the_sum() -> None:
    meter = Meter()
    topics = [f"topic-{number}" for number in range(MAX_TOPIC_SERIES + 5)]

    async def answer(entries: Sequence[ProduceEntry], *_: object) -> list[ProduceOutcome]:
        return [TAKEN for _ in entries]

    entries = [ProduceEntry(TopicPartition(topic, 0), "", BATCHES) for topic in topics]
    await metered_produce(answer, meter)(entries, Acks.ALL, 1000)
    await metered_produce(answer, meter)(entries[-1:], Acks.ALL, 1000)

    bytes_total = meter.snapshot().values["tidelog_topic_bytes_total"]
    assert len(bytes_total) == 2 * MAX_TOPIC_SERIES
    assert bytes_total[topics[-1], "produce"] == 18
    assert meter.flow("produce")[0] == 9 * (len(topics) + 1)


async def test_a_deleted_topic_has_no_series_and_stays_in_the_sum() -> None:
    meter = Meter()
    await produce(meter, TAKEN)

    meter.forget_topics_but(lambda _: False)

    assert "tidelog_topic_bytes_total" not in meter.snapshot().values
    assert meter.flow("produce") == (9, 5, 2)
