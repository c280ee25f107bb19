"""`tidelog bench`: loads, latencies and reports."""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.bench.consume_load import ReadResult, ReadSettings, read_load
from tidelog.cli.bench.latencies import Latencies
from tidelog.cli.bench.payload import LEAST_RECORD_BYTES, Payload, due_ns_of
from tidelog.cli.bench.produce_load import LoadResult, LoadSettings, ProduceLoad
from tidelog.cli.exit_status import ExitStatus, TimedOutError
from tidelog.client import BatchDelivery, BatchReport, Delivery
from tidelog.client.delivery import DeliveryFuture
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.record_batch import decode, encode
from unit.cli.conftest import Commands
from unit.cli.test_produce_consume import fill

PRODUCE = ("bench", "produce", "sea")
CONSUME = ("bench", "consume", "sea")
SEA = TopicPartition("sea", 0)

# Latencies.


@given(
    st.lists(st.floats(0, 1e7), min_size=1, max_size=200),
    st.sampled_from([0.5, 0.95, 0.99, 1.0]),
)
def test_a_percentile_is_exact_to_a_64th(latencies_ms: list[float], share: float) -> None:
    measured = Latencies()
    for latency_ms in latencies_ms:
        measured.add(latency_ms)
    ordered = sorted(latencies_ms)
    exact = next(ms for i, ms in enumerate(ordered, 1) if i >= share * len(ordered) - 1e-9)
    found = measured.percentile_ms(share)
    assert found is not None
    # Latencies are counted in microseconds.
    assert exact - 0.001 <= found <= exact * (1 + 1 / 64) + 0.001


def test_latencies_are_reported_with_the_exact_maximum() -> None:
    measured = Latencies()
    measured.add(1.0, 98)
    measured.add(70.0)
    measured.add(1234.5)
    document = measured.as_document()
    assert document is not None
    assert document["p50"] == pytest.approx(1.0, rel=1 / 64)
    assert document["p99"] == pytest.approx(70.0, rel=1 / 64)
    assert document["max"] == 1234.5
    assert str(measured).endswith("max 1234.5 ms")


def test_without_latencies_none_are_reported() -> None:
    assert Latencies().as_document() is None
    assert str(Latencies()) == ""


def test_memory_does_not_grow_with_the_number_of_latencies() -> None:
    measured = Latencies()
    for number in range(20_000):
        measured.add(number * 0.37)
    assert len(measured._buckets) < 1_000


# Records.


@given(st.integers(LEAST_RECORD_BYTES, 5_000), st.integers(0, 2**63))
def test_a_value_has_its_size_and_its_time(record_bytes: int, due_ns: int) -> None:
    value = Payload(record_bytes, 0, random.Random(1)).value(due_ns)
    assert (len(value), due_ns_of(value)) == (record_bytes, due_ns)


@pytest.mark.parametrize(
    "value", [None, b"", b"calm", b"x" * 100, b"bench ", b"bench of wood, and long enough"]
)
def test_other_values_have_no_time(value: bytes | None) -> None:
    assert due_ns_of(value) is None


def test_keys_are_chosen_from_so_many() -> None:
    payload = Payload(100, 3, random.Random(1))
    assert {payload.key() for _ in range(100)} == {b"key-0", b"key-1", b"key-2"}
    assert Payload(100, 0, random.Random(1)).key() is None


# A load, on a clock of its own.


class Clock:
    """Seconds that pass only in `sleep` of the event loop."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def wall_ns(self) -> int:
        return round(self.now_s * 1e9)


class InstantProducer:
    """Acknowledges each record `takes_s` after its call; `errors`: outcomes of the next calls."""

    def __init__(self, clock: Clock, takes_s: float = 0.0) -> None:
        self.clock = clock
        self.takes_s = takes_s
        self.errors: deque[TidelogError | None] = deque()
        self.singles = 0
        self.bulks: list[int] = []
        self.sent_at: list[float] = []
        self.raises: TidelogError | None = None

    async def send(
        self,
        topic: str,
        value: bytes | None,  # noqa: ARG002 - the producer's signature
        key: bytes | None = None,  # noqa: ARG002
        *,
        partition: int | None,
    ) -> asyncio.Future[Delivery]:
        if self.raises is not None:
            raise self.raises
        # The callback of the previous record runs before time passes.
        await asyncio.sleep(0)
        self.singles += 1
        self.sent_at.append(self.clock.now_s)
        done: DeliveryFuture[Delivery] = DeliveryFuture.new(asyncio.get_running_loop())
        self._answer(done, Delivery(topic, partition or 0, 0, 0, 1))
        return done

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,  # noqa: ARG002
        *,
        partition: int | None,
    ) -> BatchDelivery:
        self.bulks.append(len(values))
        self.sent_at += [self.clock.now_s] * len(values)
        half = len(values) // 2
        batches = []
        for count in (half, len(values) - half):
            done: DeliveryFuture[BatchReport] = DeliveryFuture.new(asyncio.get_running_loop())
            self._answer(done, BatchReport(topic, partition or 0, 0, count, 1, 0))
            batches.append(done)
        return BatchDelivery(batches)

    def _answer(self, done: asyncio.Future[Any], report: object) -> None:
        self.clock.now_s += self.takes_s
        error = self.errors.popleft() if self.errors else None
        if error is None:
            done.set_result(report)
        else:
            done.set_exception(error)

    async def flush(self) -> None:
        await asyncio.sleep(0)


def settings(**changes: object) -> LoadSettings:
    fields: dict[str, object] = {
        "topic": "sea",
        "record_bytes": 100,
        "records": None,
        "duration_seconds": None,
        "rate": None,
        "partition": None,
        "max_in_flight": 100_000,
    }
    return LoadSettings(**(fields | changes))  # type: ignore[arg-type]


async def load(producer: InstantProducer, chosen: LoadSettings) -> LoadResult:
    result = LoadResult()
    payload = Payload(chosen.record_bytes, 0, random.Random(1))
    clock = producer.clock
    await ProduceLoad(producer, chosen, payload, result, clock.now, clock.wall_ns).run()
    return result


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sleeps of the load advance the clock at once."""
    clock = Clock()
    turn = asyncio.sleep

    async def sleep(seconds: float) -> None:
        clock.now_s += seconds
        await turn(0)

    monkeypatch.setattr("tidelog.cli.bench.produce_load.asyncio.sleep", sleep)
    return clock


async def test_without_a_rate_records_are_sent_in_bulk(clock: Clock) -> None:
    producer = InstantProducer(clock)
    result = await load(producer, settings(records=2_500))
    assert (result.sent, result.acknowledged, result.failed) == (2_500, 2_500, 0)
    assert producer.bulks == [1_000, 1_000]
    assert producer.singles == 500
    assert result.acknowledged_bytes == 250_000
    assert result.latencies.count == 2_500


async def test_at_a_rate_each_record_is_sent_when_it_is_due(clock: Clock) -> None:
    producer = InstantProducer(clock)
    result = await load(producer, settings(rate=10.0, duration_seconds=1.0))
    assert result.sent == 10
    assert producer.sent_at == pytest.approx([number / 10 for number in range(10)])


async def test_the_latency_includes_the_wait_for_a_client_that_is_behind(clock: Clock) -> None:
    # Each record takes 200 ms, and one is due every 100 ms.
    producer = InstantProducer(clock, takes_s=0.2)
    result = await load(producer, settings(rate=10.0, records=5))
    assert result.latencies.max_ms == pytest.approx(5 * 200 - 4 * 100)


async def test_a_load_ends_with_its_duration(clock: Clock) -> None:
    result = await load(InstantProducer(clock, takes_s=0.3), settings(duration_seconds=1.0))
    assert result.sent == 2_000
    assert result.seconds == pytest.approx(1.2)


async def test_no_more_records_are_in_flight_than_allowed(clock: Clock) -> None:
    producer = InstantProducer(clock)
    result = await load(producer, settings(records=10, max_in_flight=1))
    assert (producer.singles, producer.bulks, result.acknowledged) == (10, [], 10)


async def test_a_failed_delivery_is_counted_and_the_load_continues(clock: Clock) -> None:
    producer = InstantProducer(clock)
    producer.errors += [TidelogError(ErrorCode.STORAGE_ERROR, "disk full"), None]
    result = await load(producer, settings(records=2_000))
    assert (result.acknowledged, result.failed, result.in_flight) == (1_500, 500, 0)
    assert result.errors == {"STORAGE_ERROR": 500}


async def test_a_rejected_call_ends_the_load(clock: Clock) -> None:
    producer = InstantProducer(clock)
    producer.raises = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "no room")
    result = await load(producer, settings(records=10, rate=100.0))
    assert (result.sent, result.failed, str(result.first_error)) == (1, 1, "no room")


# Reading.


class BatchConsumer:
    """Each poll returns the next batches and takes 10 ms."""

    def __init__(self, clock: Clock, polls: list[list[list[bytes]]]) -> None:
        self.clock = clock
        self.polls = deque(polls)
        self.read = 0

    async def poll_batches(self, timeout_ms: int) -> list[FetchedBatch]:
        self.clock.now_s += 0.01 if self.polls else timeout_ms / 1000
        batches = self.polls.popleft() if self.polls else []
        self.read += sum(map(len, batches))
        return [FetchedBatch(SEA, encode(values, timestamps_ms=1), 0) for values in batches]

    def position(self, _: TopicPartition) -> int:
        return self.read


def value_due(seconds: float) -> bytes:
    return Payload(30, 0, random.Random(1)).value(round(seconds * 1e9))


async def read(consumer: BatchConsumer, chosen: ReadSettings) -> ReadResult:
    result = ReadResult()
    clock = consumer.clock
    await read_load(consumer, chosen, result, clock.now, clock.wall_ns)
    return result


async def test_the_end_of_the_log_ends_a_measurement() -> None:
    consumer = BatchConsumer(Clock(), [[[b"abc", b"de"]], [[b"f"]], [[b"later"]]])
    result = await read(consumer, ReadSettings(None, None, {SEA: 3}, 1.0))
    assert (result.records, result.size_bytes, result.batches) == (3, 6, 2)
    assert result.seconds == pytest.approx(0.02)


async def test_records_of_a_running_load_have_an_end_to_end_time() -> None:
    clock = Clock()
    clock.now_s = 100.0
    values = [b"other", value_due(99.0), value_due(100.0), value_due(100.004), value_due(200.0)]
    result = await read(BatchConsumer(clock, [[values]]), ReadSettings(5, None, {}, 1.0))
    assert result.latencies.count == 2
    assert result.latencies.max_ms == pytest.approx(10.0)
    assert result.future_records == 1


async def test_a_duration_ends_a_measurement_without_records() -> None:
    result = await read(BatchConsumer(Clock(), []), ReadSettings(None, 0.5, {SEA: 9}, 0.1))
    assert result.records == 0
    assert result.seconds == pytest.approx(0.5)


async def test_missing_records_time_out() -> None:
    consumer = BatchConsumer(Clock(), [[[b"a"]]])
    with pytest.raises(TimedOutError, match=r"no record within 1 s after 1 records"):
        await read(consumer, ReadSettings(2, None, {}, 1.0))


# The commands.


def test_a_load_is_written_and_reported(commands: Commands) -> None:
    result = commands.run(*PRODUCE, "--records", "3000", "--record-size", "100", "--keys", "5")
    assert result.exit_code == ExitStatus.DONE, result.stderr
    rows = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert rows["Acknowledged"].strip().startswith("3,000 records (300.0 kB) in ")
    assert rows["Latency"].strip().startswith("p50 ")
    batches = [b for p in commands.cluster.topics["sea"].partitions for b in p.batches]
    columns = [decode(batch) for batch in batches]
    assert sum(len(c.values) for c in columns) == 3_000
    assert {key for c in columns for key in c.keys} == {b"key-%d" % n for n in range(5)}
    assert {len(value or b"") for c in columns for value in c.values} == {100}


def test_a_load_is_reported_as_json(commands: Commands) -> None:
    result = commands.run(*PRODUCE, "--rate", "100", "--duration", "300ms", "--json")
    document = json.loads(result.stdout)
    assert document["sent"] == document["acknowledged"] > 0
    assert (document["failed"], document["errors"]) == (0, {})
    assert document["requested_records_per_second"] == 100
    assert set(document["latency_ms"]) == {"p50", "p95", "p99", "max"}


def test_a_topic_with_records_needs_consent(commands: Commands) -> None:
    fill(commands, 1, [b"ebb", b"flow"])
    rejected = commands.run(*PRODUCE, "--records", "1")
    assert rejected.exit_code == ExitStatus.USAGE
    assert "'sea' holds 2 records" in rejected.stderr
    assert "--yes" in rejected.stderr
    declined = commands.run(*PRODUCE, "--records", "1", input_="n\n", interactive=True)
    assert declined.exit_code == ExitStatus.FAILED
    assert "Nothing was written." in declined.stderr
    assert len(commands.values("sea")) == 2
    for consent in (("--yes",), ()):
        given_ = commands.run(*PRODUCE, "--records", "1", *consent, input_="y\n", interactive=True)
        assert given_.exit_code == ExitStatus.DONE
    assert len(commands.values("sea")) == 4


def test_failed_records_are_reported_with_their_error(commands: Commands) -> None:
    rejection = TidelogError(ErrorCode.INVALID_REQUEST, "not known here")
    for broker in commands.cluster.brokers.values():
        broker.script["produce"] = deque([rejection] * 50)
    result = commands.run(*PRODUCE, "--records", "1", "--json")
    assert result.exit_code == ExitStatus.FAILED
    document = json.loads(result.stdout)
    assert (document["failed"], document["errors"]) == (1, {"INVALID_REQUEST": 1})
    assert document["latency_ms"] is None
    assert "1 record not delivered" in result.stderr


def test_a_topic_is_read_to_its_end_and_reported(commands: Commands) -> None:
    fill(commands, 0, [b"ebb", b"flow"])
    fill(commands, 1, [b"calm"])
    document = json.loads(commands.run(*CONSUME, "--json").stdout)
    assert (document["records"], document["batches"]) == (3, 3)
    assert document["end_to_end_ms"] is None
    one = json.loads(commands.run(*CONSUME, "-p", "1", "--json").stdout)
    assert one["records"] == 1
    shown = commands.run(*CONSUME)
    assert shown.stdout.startswith("Read        3 records (14 B) in 3 batches, ")
    assert "End to end  not measured" in shown.stdout


def test_the_end_of_a_topic_is_watched_for_a_while(commands: Commands) -> None:
    fill(commands, 0, [b"ebb"])
    result = commands.run(*CONSUME, "--from", "end", "--duration", "200ms", "--json")
    assert result.exit_code == ExitStatus.DONE
    document = json.loads(result.stdout)
    assert (document["records"], document["interrupted"]) == (0, False)
    assert document["seconds"] >= 0.2


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_an_unknown_topic_or_partition_is_not_found(commands: Commands, command: str) -> None:
    assert commands.run("bench", command, "nosuch").exit_code == ExitStatus.NOT_FOUND
    partition = commands.run("bench", command, "sea", "--partition", "2")
    assert partition.exit_code == ExitStatus.NOT_FOUND
    assert "its partitions are 0 to 1" in partition.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (*PRODUCE, "--record-size", "1"),
        (*PRODUCE, "--record-size", "16MiB"),
        (*PRODUCE, "--rate", "0"),
        (*PRODUCE, "--records", "0"),
        (*PRODUCE, "--duration", "1ms"),
        (*PRODUCE, "--acks", "2"),
        (*CONSUME, "--from", "later"),
        (*CONSUME, "--duration", "0"),
    ],
)
def test_wrong_usage_has_its_own_exit_status(
    commands: Commands, arguments: tuple[str, ...]
) -> None:
    assert commands.run(*arguments).exit_code == ExitStatus.USAGE
