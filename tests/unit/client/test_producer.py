import asyncio
import gc
from typing import Any, cast

import grpc
import pytest

from tidelog import record_limits
from tidelog.client import BatchReport, Producer, accumulator, open_batches, record_columns
from tidelog.client import producer as producer_module
from tidelog.errors import BatchTooLargeError, ErrorCode, TidelogError
from tidelog.model import Acks, Codec
from tidelog.record_batch import check, decode
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import broker_pb2
from unit.client.fake_broker import FakeBroker, FakeCluster
from unit.loop_turns import Turns

FAST: dict[str, Any] = {"retry_backoff_ms": (5, 20), "linger_ms": 1}


async def test_a_record_is_delivered_with_its_offset(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap()) as producer:
        first = await producer.send("sea", b"ebb", key=b"k", timestamp_ms=5, headers=[("h", b"v")])
        second = await producer.send("sea", None, timestamp_ms=6)
        assert await first == ("sea", 0, 0, 5, 1)
        assert await second == ("sea", 0, 1, 6, 1)
    [batch] = cluster.partition("sea").batches
    columns = decode(batch)
    assert columns == ([b"k", None], [b"ebb", None], [5, 6], {0: (("h", b"v"),)})


@pytest.mark.parametrize("codec", Codec)
async def test_records_of_every_codec_arrive(cluster: FakeCluster, codec: Codec) -> None:
    async with Producer(cluster.bootstrap(), codec=codec) as producer:
        await (await producer.send_many("sea", [b"tide" * 100] * 50))
    [batch] = cluster.partition("sea").batches
    assert batch.header.codec == codec
    check(batch, max_decompressed_bytes=1 << 20)


async def test_many_values_become_few_batches(cluster: FakeCluster) -> None:
    cluster.create("wide", [0, 1, 2])
    async with Producer(cluster.bootstrap()) as producer:
        delivery = await producer.send_many("wide", [bytes(1024)] * 192)
        reports = await delivery
    assert [report.record_count for report in reports] == [64, 64, 64]
    assert {report.partition for report in reports} == {0, 1, 2}
    assert all(report.base_offset == 0 for report in reports)


async def test_keyed_values_keep_their_order_within_a_key(cluster: FakeCluster) -> None:
    cluster.create("wide", [0, 1, 2])
    keys = [b"k%d" % (number % 7) for number in range(200)]
    values = [b"%d" % number for number in range(200)]
    async with Producer(cluster.bootstrap(), batch_bytes=100) as producer:
        await (await producer.send_many("wide", values, keys))
    seen: dict[bytes | None, list[int]] = {}
    for partition in cluster.topics["wide"].partitions:
        here: set[bytes | None] = set()
        for batch in partition.batches:
            columns = decode(batch)
            here.update(columns.keys)
            for key, value in zip(columns.keys, columns.values, strict=True):
                assert value is not None
                seen.setdefault(key, []).append(int(value))
        assert not here & (set(seen) - here)
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 200


async def test_a_request_carries_many_partitions(cluster: FakeCluster) -> None:
    cluster.create("wide", [0] * 8)
    async with Producer(cluster.bootstrap()) as producer:
        for partition in range(8):
            await producer.send("wide", b"x", partition=partition)
        await producer.flush()
    assert [len(r.partitions) for r in cluster.brokers[0].seen["produce"]] == [8]  # type: ignore[attr-defined]


@pytest.mark.rule("clients-find-moved-leaders")
async def test_the_leader_hint_of_an_error_is_used_without_metadata(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap(), **FAST) as producer:
        await (await producer.send("sea", b"1"))
        stale = cluster.brokers[0].metadata(broker_pb2.MetadataRequest(topics=["sea"]))
        for broker in cluster.brokers.values():
            broker.metadata_of = lambda: stale
        cluster.elect("sea", 0, leader=1)
        assert (await (await producer.send("sea", b"2"))).leader_epoch == 2
    assert cluster.partition("sea").values() == [b"1", b"2"]


@pytest.mark.rule("clients-find-moved-leaders")
async def test_without_a_hint_metadata_leads_to_the_new_leader(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap(), **FAST) as producer:
        await (await producer.send("sea", b"1"))
        cluster.brokers[0].hint = False
        cluster.elect("sea", 0, leader=2)
        assert (await (await producer.send("sea", b"2"))).offset == 1


@pytest.mark.rule("failed-send-reaches-next-leader")
async def test_writes_continue_when_the_leader_dies(cluster: FakeCluster) -> None:
    loop = asyncio.get_running_loop()
    async with Producer(cluster.bootstrap()) as producer:
        await (await producer.send("sea", b"1"))
        await cluster.brokers[0].close()
        waiting = await producer.send("sea", b"2")
        await asyncio.sleep(0.3)
        assert not waiting.done()
        cluster.elect("sea", 0, leader=1)
        elected = loop.time()
        assert (await waiting).leader_epoch == 2
        # Metadata is polled at least every 100 ms; the rest is a margin for a busy machine.
        assert loop.time() - elected < 1
    assert cluster.partition("sea").values() == [b"1", b"2"]


@pytest.mark.parametrize(
    "trouble",
    [
        TidelogError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few"),
        TidelogError(ErrorCode.REQUEST_TIMED_OUT, "late"),
        TidelogError(ErrorCode.STORAGE_ERROR, "disk full"),
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    ],
)
async def test_retriable_errors_are_retried(cluster: FakeCluster, trouble: Any) -> None:
    cluster.brokers[0].script["produce"].extend([trouble, trouble])
    async with Producer(cluster.bootstrap(), **FAST) as producer:
        assert (await (await producer.send("sea", b"1"))).offset == 0
    assert len(cluster.brokers[0].seen["produce"]) == 3


async def test_a_lost_answer_may_duplicate_without_idempotence(cluster: FakeCluster) -> None:
    cluster.brokers[0].script["produce"].append("append, then die")
    async with Producer(cluster.bootstrap(), idempotent=False, **FAST) as producer:
        assert (await (await producer.send("sea", b"1"))).offset == 1
    assert cluster.partition("sea").values() == [b"1", b"1"]


async def test_an_error_that_no_retry_can_repair_is_reported(cluster: FakeCluster) -> None:
    rejected = TidelogError(ErrorCode.INVALID_BATCH, "no batch")
    cluster.brokers[0].script["produce"].append(rejected)
    async with Producer(cluster.bootstrap()) as producer:
        delivery = await producer.send("sea", b"1")
        with pytest.raises(TidelogError, match="no batch"):
            await delivery
        second = TidelogError(ErrorCode.INVALID_REQUEST, "bad request")
        cluster.brokers[0].script["produce"].append(second)
        many = await producer.send_many("sea", [b"1"])
        with pytest.raises(TidelogError, match="bad request"):
            await many


async def test_a_batch_too_large_for_the_topic_fails_alone(cluster: FakeCluster) -> None:
    cluster.create("small", [0], max_batch_bytes="1024")
    cluster.brokers[0].gate.clear()
    async with Producer(cluster.bootstrap(), max_in_flight_per_partition=1) as producer:
        first = await producer.send_many("small", [b"1"])
        large = await producer.send_many("small", [bytes(5000)])
        last = await producer.send_many("small", [b"3"])
        cluster.brokers[0].gate.set()
        await asyncio.gather(first, last)
        with pytest.raises(TidelogError, match="too many") as caught:
            await large
        assert caught.value.code is ErrorCode.BATCH_TOO_LARGE
    assert cluster.partition("small").values() == [b"1", b"3"]


async def test_a_batch_beyond_the_limit_of_any_topic_fails_alone_and_names_the_limit(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_limits, "HIGHEST_MAX_BATCH_BYTES", 3_000)
    async with Producer(cluster.bootstrap()) as producer:
        first = await producer.send_many("sea", [b"1"])
        large = await producer.send_many("sea", [bytes(5_000)])
        single = await producer.send("sea", bytes(5_000))
        last = await producer.send_many("sea", [b"3"])
        await asyncio.gather(first, last)
        for delivery in (large, single):
            with pytest.raises(
                BatchTooLargeError, match=r"at most 3000 \(.*max_batch_bytes"
            ) as caught:
                await delivery
            assert not caught.value.outcome_unknown
        assert producer.free_bytes == 32 << 20
    assert cluster.partition("sea").values() == [b"1", b"3"]


async def test_batches_do_not_share_a_request_that_is_larger_than_a_broker_accepts(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "MAX_SHARED_REQUEST_BYTES", 2_500)
    cluster.brokers[0].gate.clear()
    async with Producer(cluster.bootstrap(), max_request_bytes=1 << 30) as producer:
        sent = [await producer.send_many("sea", [bytes(1_000)]) for _ in range(5)]
        cluster.brokers[0].gate.set()
        await asyncio.gather(*sent)
    requests = [cast(broker_pb2.ProduceRequest, r) for r in cluster.brokers[0].seen["produce"]]
    assert max(request.ByteSize() for request in requests) <= 2_500


@pytest.mark.parametrize("keyed", [False, True])
async def test_many_records_in_one_call_let_other_tasks_run(
    cluster: FakeCluster, keyed: bool
) -> None:
    cluster.create("wide", [0, 1, 2])
    count = 50_000
    keys = [b"%d" % number for number in range(count)] if keyed else None
    async with Producer(cluster.bootstrap(), linger_ms=0) as producer, Turns() as turns:
        await producer.partitions_of("wide")
        turns.taken()
        # Empty values fill no request by their bytes.
        sending = await producer.send_many("wide", [b""] * count, keys)
        assert turns.taken() >= count // record_columns.SLICE_RECORDS * (2 if keyed else 1)
        await sending


async def test_a_long_call_is_not_overtaken_by_a_later_one(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap()) as producer:
        long = asyncio.create_task(producer.send_many("sea", [b"1"] * 10_000))
        await asyncio.sleep(0)
        later = await producer.send("sea", b"2")
        assert (await later).offset == 10_000
        await (await long)


async def test_delivery_times_out(cluster: FakeCluster) -> None:
    cluster.elect("sea", 0, leader=-1)
    async with Producer(cluster.bootstrap(), delivery_timeout_ms=150) as producer:
        delivery = await producer.send("sea", b"1")
        with pytest.raises(TidelogError, match=r"delivery_timeout_ms.*known: it was not"):
            await delivery


async def test_a_hanging_leader_is_replaced(cluster: FakeCluster) -> None:
    cluster.brokers[0].script["produce"].append("hang")
    settings = FAST | {"request_timeout_ms": 1, "delivery_timeout_ms": 5000}
    async with Producer(cluster.bootstrap(), **settings) as producer:
        assert (await (await producer.send("sea", b"1"))).offset == 0


async def test_a_full_buffer_blocks_senders(cluster: FakeCluster) -> None:
    cluster.brokers[0].gate.clear()
    async with Producer(cluster.bootstrap(), buffer_bytes=3000, batch_bytes=1000) as producer:
        sending = asyncio.create_task(producer.send_many("sea", [bytes(1000)] * 10))
        for _ in range(3_000):
            if not producer.free_bytes:
                break
            await asyncio.sleep(0.01)
        assert not sending.done()
        assert producer.free_bytes == 0
        cluster.brokers[0].gate.set()
        assert len(await (await sending)) == 10
        assert producer.free_bytes == 3000


async def test_order_is_kept_through_retries_with_one_in_flight(cluster: FakeCluster) -> None:
    error = TidelogError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    settings = FAST | {"max_in_flight_per_partition": 1, "batch_bytes": 30}
    async with Producer(cluster.bootstrap(), **settings) as producer:
        for number in range(100):
            if number % 20 == 0:
                cluster.brokers[0].script["produce"].append(error)
            await producer.send("sea", b"%d" % number)
        await producer.flush()
    assert cluster.partition("sea").values() == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "nowhere", "value": b"1"}, "does not exist"),
        ({"topic": "sea", "value": b"1", "partition": 1}, "partitions are 0 to 0"),
        ({"topic": "sea", "value": b"1", "partition": -1}, "partitions are 0 to 0"),
        ({"topic": "sea", "value": bytes(2 << 20)}, "max_request_bytes"),
    ],
)
async def test_unsendable_records_raise_at_once(
    cluster: FakeCluster, arguments: dict[str, Any], error: str
) -> None:
    async with Producer(cluster.bootstrap()) as producer:
        with pytest.raises(TidelogError, match=error):
            await producer.send(**arguments)
        many = arguments | {"values": [arguments["value"]]}
        del many["value"]
        with pytest.raises(TidelogError, match=error):
            await producer.send_many(**many)


async def test_wrong_types_raise_at_once(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap()) as producer:
        with pytest.raises(TypeError, match="bytes"):
            await producer.send("sea", "text")
        with pytest.raises(TypeError, match=r"values\[1\] is str"):
            await producer.send_many("sea", [b"a", "text"])
        with pytest.raises(ValueError, match="give one for each"):
            await producer.send_many("sea", [b"a"], keys=[])
    assert cluster.partition("sea").batches == []


def test_settings_out_of_range_are_rejected() -> None:
    with pytest.raises(ValueError, match="batch_bytes is 0"):
        Producer("localhost:1", batch_bytes=0)
    with pytest.raises(TidelogError, match="host:port"):
        Producer("localhost")


async def test_delivery_reports_come_by_callback(cluster: FakeCluster) -> None:
    reports: list[BatchReport] = []
    rejected = TidelogError(ErrorCode.INVALID_BATCH, "no batch")
    async with Producer(cluster.bootstrap(), on_delivery=reports.append) as producer:
        await producer.send_many("sea", [b"1", b"2"])
        await producer.flush()
        cluster.brokers[0].script["produce"].append(rejected)
        await producer.send_many("sea", [b"3"])
    await asyncio.sleep(0)
    assert [(r.base_offset, r.record_count) for r in reports] == [(0, 2), (-1, 1)]
    assert reports[1].error is not None
    assert reports[1].error.message == "no batch"


async def test_acks_none_gives_no_offset(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap(), acks=Acks.NONE) as producer:
        await producer.send_many("sea", [b"1"])
    [request] = cluster.brokers[0].seen["produce"]
    assert request.acks == Acks.NONE  # type: ignore[attr-defined]


async def test_closing_delivers_lingering_records(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap(), linger_ms=60_000) as producer:
        await producer.send("sea", b"1")
    assert cluster.partition("sea").values() == [b"1"]
    with pytest.raises(TidelogError, match="closed"):
        await producer.send("sea", b"2")


async def test_closing_without_flush_ends_all_deliveries(cluster: FakeCluster) -> None:
    cluster.brokers[0].gate.clear()
    producer = Producer(cluster.bootstrap(), max_in_flight_per_broker=1, linger_ms=0)
    in_flight = await producer.send("sea", b"1")
    await asyncio.sleep(0.05)
    waiting = await producer.send("sea", b"2")
    lingering = await producer.send_many("sea", [b"3"])
    await producer.close(flush=False)
    for delivery in (in_flight, waiting, lingering):
        with pytest.raises(TidelogError, match="closed"):
            await delivery


async def until_asked(broker: FakeBroker, produces: int) -> None:
    async with asyncio.timeout(10):
        while len(broker.seen["produce"]) < produces:  # noqa: ASYNC110 - a broker reports it to no one
            await asyncio.sleep(0.001)


async def owe_an_answer(producer: Producer, leader: FakeBroker, topic: str) -> None:
    """Lets the leader owe an answer to a record of partition 0 until the gate is set. Each
    partition has one record before that.
    """
    for partition in range(await producer.partitions_of(topic)):
        await (await producer.send(topic, b"", partition=partition))
    leader.gate.clear()
    asked = len(leader.seen["produce"])
    await producer.send(topic, b"", partition=0)
    await until_asked(leader, asked + 1)


@pytest.fixture
def gathering_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (accumulator, open_batches):
        monkeypatch.setattr(module, "MAX_GATHERING_MS", 60_000)


@pytest.mark.usefixtures("gathering_for_long")
async def test_records_gather_while_their_leader_owes_an_answer(cluster: FakeCluster) -> None:
    cluster.create("river", [0, 1])
    owing = cluster.brokers[0]
    async with Producer(cluster.bootstrap(), linger_ms=0) as producer:
        await (await producer.send("river", b"0", partition=0))
        owing.gate.clear()
        sent = []
        for value in (b"1", b"2", b"3", b"4"):
            sent.append(await producer.send("river", value, partition=0))
            await asyncio.sleep(0.01)
        # Records of another leader do not wait for it.
        await (await producer.send("river", b"5", partition=1))
        owing.gate.set()
        await asyncio.gather(*sent)
    counts = [batch.header.record_count for batch in cluster.partition("river").batches]
    assert counts == [1, 1, 3]


async def test_a_hanging_leader_delays_its_other_partitions_once(cluster: FakeCluster) -> None:
    cluster.create("river", [0, 0])
    leader, loop = cluster.brokers[0], asyncio.get_running_loop()
    producer = Producer(cluster.bootstrap(), linger_ms=0)
    await (await producer.send("river", b"0", partition=1))
    leader.script["produce"].append("hang")
    hung = await producer.send("river", b"1", partition=0)
    await until_asked(leader, 2)
    began = loop.time()
    await (await producer.send("river", b"2", partition=1))
    # If each were delayed, they would take as many times 100 ms.
    for _ in range(50):
        await (await producer.send("river", b"3", partition=1))
    assert loop.time() - began < 3
    assert not hung.done()
    await producer.close(flush=False)
    with pytest.raises(TidelogError, match="closed"):
        await hung


@pytest.mark.usefixtures("gathering_for_long")
async def test_records_without_a_key_skip_gathering_batches(cluster: FakeCluster) -> None:
    cluster.create("delta", [0, 1, 2])
    owing = cluster.brokers[0]
    async with Producer(cluster.bootstrap(), linger_ms=0) as producer:
        await owe_an_answer(producer, owing, "delta")
        for _ in range(12):
            sent = await producer.send("delta", b"")
            await asyncio.wait([sent], timeout=1)  # in vain for the batch that gathers
        owing.gate.set()
        await producer.flush()
    ends = [cluster.partition("delta", partition).end for partition in range(3)]
    assert sum(ends) == 16
    assert ends[0] == 3, "what was sent there before, and one that gathered"


@pytest.mark.usefixtures("gathering_for_long")
async def test_full_batches_take_gathering_ones_along(cluster: FakeCluster) -> None:
    cluster.create("river", [0, 0])
    leader = cluster.brokers[0]
    async with Producer(cluster.bootstrap(), linger_ms=0) as producer:
        await owe_an_answer(producer, leader, "river")
        gathering = await producer.send("river", b"", partition=1)
        await asyncio.sleep(0.01)
        assert len(leader.seen["produce"]) == 3
        full = await producer.send_many("river", [b""], partition=0)
        await until_asked(leader, 4)
        leader.gate.set()
        await gathering
        await full
    request = leader.seen["produce"][3]
    assert isinstance(request, broker_pb2.ProduceRequest)
    assert {group.partition for group in request.partitions} == {0, 1}


async def test_an_unobserved_failure_is_logged(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    rejected = TidelogError(ErrorCode.INVALID_BATCH, "no batch")
    cluster.brokers[0].script["produce"].append(rejected)
    async with Producer(cluster.bootstrap()) as producer:
        await producer.send("sea", b"1")
    gc.collect()
    assert "never retrieved" in caplog.text


async def test_a_hanging_broker_does_not_block_metadata_requests(cluster: FakeCluster) -> None:
    for broker_id in (0, 1):
        cluster.brokers[broker_id].script["metadata"].append("hang")
    async with Producer(cluster.bootstrap()) as producer:
        started = asyncio.get_running_loop().time()
        await (await producer.send("sea", b"1"))
        assert asyncio.get_running_loop().time() - started < 1.5


async def test_no_reachable_broker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.client.cluster_metadata.UNREACHABLE_TIMEOUT_MS", 100)
    async with Producer("127.0.0.1:1") as producer:
        with pytest.raises(TidelogError, match=r"no broker answered.*check that the cluster runs"):
            await producer.send("sea", b"1")


def test_an_unreachable_broker_is_named() -> None:
    assert "no answer from a:1: gone" in str(UnreachableError("a:1", "gone"))
